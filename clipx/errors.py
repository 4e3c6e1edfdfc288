"""Errors that end a command with one line on the terminal and no traceback."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# failure of a disk, a network drive or its server: the same command may work later
DRIVE_FAILED = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EREMOTEIO)
REQUEUE = 75  # exit code EX_TEMPFAIL: stopped early and saved; the same command resumes, schedulers may requeue


class UserError(ValueError):
    """Wrong input, or what else the user must put right. Exit code 2.

    The message names the key, the value, and the allowed values or what to type.
    """

    code = 2


class Fault(RuntimeError):
    """External failure, such as a file system that hangs. Exit code 1."""

    code = 1


class RunDiverged(Fault):
    """A run ended after train.max_bad_steps steps in a row without a finite loss and gradient. Exit code 3."""

    code = 3


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Put `prefix`, for example the setting that names a file, before the message of a UserError that lacks it.

    Raise a UserError also for a file that is forbidden or has vanished.
    """
    try:
        yield
    except (PermissionError, FileNotFoundError) as error:
        reason = f"cannot use {error.filename}: {error.strerror}" if error.filename else one_line(error)
        raise UserError(f"{prefix}: {reason}") from error
    except UserError as error:
        if prefix in str(error):
            raise
        raise UserError(f"{prefix}: {error}") from error


def most_severe(errors: Sequence[Exception]) -> type[UserError | Fault]:
    """Return the type of the most severe error: Fault (also for unknown types), else UserError, else RunDiverged."""
    order: tuple[type[UserError | Fault], ...] = (RunDiverged, UserError, Fault)
    ranks = [next((k for k, kind in enumerate(order) if isinstance(error, kind)), len(order) - 1) for error in errors]
    return order[max(ranks)]


def of_all_runs(failures: Sequence[tuple[str, Exception]]) -> str:
    """Return each message of (place, error) once, after its first place: runs of a sweep often fail alike."""
    runs: dict[str, list[str]] = {}
    for where, error in failures:
        runs.setdefault(str(error), []).append(where)
    more = {message: f" (the same for {len(of) - 1} more)" for message, of in runs.items() if len(of) > 1}
    return "; ".join(f"{of[0]}{message}{more.get(message, '')}" for message, of in runs.items())


def printable_line(text: str) -> str:
    """Return text on one line without control characters, which tables, SVG and terminals would act on."""
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """Return text with a space for each control character and line break."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def one_line(error: BaseException) -> str:
    """Return the first line of an error message, and the second one if the first ends with a colon."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
