"""Exit codes of the commands."""

import errno
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from types import FrameType

from clipx.errors import DRIVE_FAILED, Fault, UserError, printable_line
from clipx.utils.plugins import from_own_code

STOPPED = 130  # exit code after Ctrl-C: 128 + SIGINT, as in a shell

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk or the user's quota


def exit_code_of(call: Callable[[], None]) -> int:
    """Run a command and return its exit code.

    0 done, 2 wrong input, 1 external failure, 3 diverged, 130 Ctrl-C, 141 the program that reads stdout has ended.

    Errors of these kinds are printed in one line. Any other exception propagates; one in a plug-in's code is printed.
    A training run that stopped early and was saved exits with 75 (SystemExit).
    """
    try:
        call()
        sys.stdout.flush()  # flush here: at exit, Python would print the error itself
    except BrokenPipeError:
        if not _stdout_is_closed():
            raise  # not stdout but a pipe between clipx processes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard further output
        return 128 + signal.SIGPIPE
    except (UserError, Fault) as error:
        print(f"clipx: {printable_line(str(error))}", file=sys.stderr)
        return error.code
    except OSError as error:
        if error.filename is None and error.errno not in (*DISK_FULL, *DRIVE_FAILED):
            raise
        written = "the file being written" if error.errno in DISK_FULL else ""
        place = f"cannot use {error.filename or written}: " if error.filename or written else ""
        print(f"clipx: {place}{error.strerror}", file=sys.stderr)
        return 1 if error.errno in DRIVE_FAILED else 2
    except BrokenExecutor:
        print("clipx: one of the command's processes was killed, probably because memory ran out", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        if (own := from_own_code(error)) is None:
            raise
        traceback.print_exception(error.with_traceback(own))
        print(f"clipx: in your code, {own.tb_frame.f_code.co_filename}:{own.tb_lineno}, or below it", file=sys.stderr)
        return 1
    return 0


@contextmanager
def ends_on_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the command with one line. A second Ctrl-C ends the process at once, without a message.

    A Ctrl-C after the `with` block also ends the process at once. A training run has its own handler: it saves first.
    """
    command, before = os.getpid(), signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != command:  # a forked process ends with its parent
            return
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.write(2, b"\nclipx: stopped\n")  # os.write, because the signal may have interrupted a print
        if _is_importing(frame):  # an exception may make the imported library print a traceback; no file is open yet
            os._exit(STOPPED)
        raise KeyboardInterrupt

    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        # a shell script ignores SIGINT for commands that it starts with `&`; only the main thread may set handlers
        yield
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _stdout_is_closed() -> bool:
    """Return True if the process that reads stdout has closed the pipe (`clipx ... | head`)."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)  # 0: errors only
    return any(event & select.POLLERR for _, event in output.poll(0))
