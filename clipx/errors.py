"""Errors that end a command with one line on the terminal and no traceback."""

REQUEUE = 75  # exit code EX_TEMPFAIL: stopped early and saved; the same command resumes, schedulers may requeue


class UserError(ValueError):
    """Wrong input. The message names the key, the value, and the allowed values or what to type. Exit code 2."""


class Fault(RuntimeError):
    """External failure, such as a file system that hangs. Exit code 1."""


def one_line(error: BaseException) -> str:
    """Return the first line of an error message, and the second one if the first ends with a colon."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
