"""A folder that another process makes at the same time stays, and is no error."""

from pathlib import Path

import pytest

from clipx.utils.files import new_folder


def test_the_folder_of_a_faster_process_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, plain = tmp_path / "made", Path.rename

    def overtaken(self: Path, target: Path) -> Path:
        target.mkdir()
        (target / "file").write_text("theirs")
        return plain(self, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    with new_folder(path) as made:
        (made / "file").write_text("ours")
    assert (path / "file").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_take_its_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, target: Path) -> Path:
        raise OSError("no room")

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(OSError, match="no room"), new_folder(tmp_path / "made"):
        pass
    assert list(tmp_path.iterdir()) == []
