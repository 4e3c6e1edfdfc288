"""Exit codes of the commands."""

import errno
import os
import select
import signal
import sys
from collections.abc import Callable

from clipx.errors import Fault, UserError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk or the user's quota
# a disk, a network drive or its server failed: the same command may work later
DRIVE_FAILED = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EREMOTEIO)


def exit_code_of(call: Callable[[], None]) -> int:
    """Run a command and return its exit code: 0 done, 2 wrong input, 1 external failure, 3 diverged, 130 Ctrl-C.

    Errors of these kinds are printed in one line; any other exception is a bug and propagates with its traceback.
    A training run that stopped early and was saved exits with 75 (SystemExit).
    """
    try:
        call()
        sys.stdout.flush()  # flush here: at exit, Python would print the error itself
    except BrokenPipeError:
        if not _reader_left():
            raise  # not stdout but a pipe between clipx processes
        return 128 + signal.SIGPIPE
    except UserError as error:
        print(f"clipx: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except Fault as error:
        print(f"clipx: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        if error.filename is None and error.errno not in DISK_FULL:
            raise
        what = error.filename or "the file being written"
        print(f"clipx: cannot use {what}: {error.strerror}", file=sys.stderr)
        return 1 if error.errno in DRIVE_FAILED else 2
    except KeyboardInterrupt:
        print("clipx: stopped", file=sys.stderr)
        return 130
    return 0


def _reader_left() -> bool:
    """Return True if the reader of stdout has closed it (`clipx ... | head`); then discard further output."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)  # 0: errors only
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
