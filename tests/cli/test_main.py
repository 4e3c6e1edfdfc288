"""Exit codes and error messages of the command."""

import errno
import os
import subprocess
import sys

import pytest

from cli import exit_codes


@pytest.mark.parametrize("arguments", [["--help"], ["ls", "claims"], ["ls", "--help"]])
def test_a_closed_stdout_is_no_error(arguments: list[str]) -> None:
    """As in `clipx ... | head`."""
    command = [sys.executable, "-m", "cli.main", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in (141, 1)  # 141: 128 + SIGPIPE; rich, which prints tables, exits with 1


def test_a_broken_pipe_to_a_worker_is_not_hidden() -> None:
    def call() -> None:
        raise BrokenPipeError(32, "to a worker")

    with pytest.raises(BrokenPipeError):
        exit_codes.exit_code_of(call)


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EIO, 1), (errno.ESTALE, 1), (errno.ETIMEDOUT, 1), (errno.ENOTCONN, 1), (errno.EREMOTEIO, 1),
     (errno.ENOENT, 2), (errno.EACCES, 2), (errno.ENOSPC, 2)],
)  # fmt: skip
def test_a_failed_drive_is_a_fault_and_a_missing_file_a_user_error(
    number: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def read() -> None:
        raise OSError(number, os.strerror(number), "data/00000.tar")

    assert exit_codes.exit_code_of(read) == code
    assert capsys.readouterr().err == f"clipx: cannot use data/00000.tar: {os.strerror(number)}\n"


def test_a_failed_read_of_an_open_file_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    def read() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))  # read() knows no file name

    assert exit_codes.exit_code_of(read) == 1
    assert capsys.readouterr().err == f"clipx: {os.strerror(errno.EIO)}\n"
