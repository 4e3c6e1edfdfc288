"""What ends a command with one line at the terminal and no traceback."""

REQUEUE = 75  # exit code EX_TEMPFAIL: stopped early and saved, the same command goes on; schedulers may requeue


class UserError(ValueError):
    """The input is wrong: the message names the key, its value and what is allowed or what to type. Exit code 2."""


class Fault(RuntimeError):
    """Something outside gave way, such as a file system that hangs: the message says what. Exit code 1."""


def one_line(error: BaseException) -> str:
    """What an error of a library says, in one line: its first, and the next where that one only announces it."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
