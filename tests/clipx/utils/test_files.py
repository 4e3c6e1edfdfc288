"""new_folder keeps a folder that another process has created, and leaves no files after an error; cache folder."""

import errno
import os
from pathlib import Path

import pytest

from clipx.errors import UserError
from clipx.utils import files
from clipx.utils.files import cache_home, new_folder


def test_the_folder_of_a_faster_process_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rename = tmp_path / "made", Path.rename

    def overtake(self: Path, target: Path) -> Path:
        target.mkdir()
        (target / "file").write_text("theirs")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", overtake)
    with new_folder(path) as folder:
        (folder / "file").write_text("ours")
    assert (path / "file").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_rename_is_an_error_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError("no room")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="no room"), new_folder(tmp_path / "made"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_new_folder_has_the_permissions_of_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "UMASK", 0o027)
    with new_folder(tmp_path / "made"):
        pass
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o750


@pytest.mark.usefixtures("empty_cache")
def test_a_cache_on_a_disk_without_locks_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(UserError, match=r"cannot be locked: Function not implemented; set .* CLIPX_CACHE"):
        files.lock("x").__enter__()


def test_a_cache_folder_that_is_a_file_is_named_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("CLIPX_CACHE", str(place))
        with pytest.raises(UserError, match=f"^the environment variable CLIPX_CACHE={place} cannot be used"):
            cache_home()
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "new"))
    assert cache_home() == tmp_path / "new"
