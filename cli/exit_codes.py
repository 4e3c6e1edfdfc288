"""Exit codes of the commands: run a call, print its error in one line, return its code."""

import errno
import os
import select
import signal
import sys
from collections.abc import Callable

from clipx.errors import Fault, UserError

FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk, or the user's share of it, is full
# a disk, a network drive or its server failed: the same command may work later
AWAY = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EREMOTEIO)


def exit_code_of(call: Callable[[], None]) -> int:
    """Run a command and return its exit code: 0 done, 2 wrong input, 1 external failure, 130 Ctrl-C.

    Errors of these kinds are printed in one line; any other exception is a bug and propagates with its traceback.
    `cli.train` exits with 75 itself when a run stopped early and was saved.
    """
    try:
        call()
        sys.stdout.flush()  # not at the interpreter's end, where a failure would be printed
    except BrokenPipeError:
        if not _reader_left():
            raise  # of a process of ours
        return 128 + signal.SIGPIPE
    except UserError as error:
        print(f"clipx: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except Fault as error:
        print(f"clipx: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            raise
        what = error.filename or "a file that is being written"
        print(f"clipx: cannot use {what}: {error.strerror}", file=sys.stderr)
        return 1 if error.errno in AWAY else 2
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
