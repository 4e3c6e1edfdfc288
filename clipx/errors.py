"""The user's mistakes: one line at the terminal, exit code 2, no traceback."""


class UserError(ValueError):
    """The input is wrong: the message names the key, its value and what is allowed or what to type."""
