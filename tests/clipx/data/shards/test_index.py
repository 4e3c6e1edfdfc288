"""The index: new shards change no sample numbers, each shard is scanned once, and the arrays are small and shared."""

import os
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest

from clipx.data.shards import index as indices
from clipx.data.shards import tar
from clipx.data.shards.index import INDEX_FOLDER, build_index, load, open_index, save
from clipx.data.shards.reader import Shards
from tests.helpers.folder import add, jpeg, write_shards

pytestmark = pytest.mark.usefixtures("empty_cache")


def names(folder: Path) -> list[str]:
    shards = Shards.open(folder, ("image", "txt"))
    return [shards.where(i) for i in range(len(shards))]


def write_shard(path: Path, *keys: str) -> None:
    with tarfile.open(path, "w") as tar:
        for key in keys:
            add(tar, f"{key}.jpg", jpeg("red"))
            add(tar, f"{key}.txt", key.encode())


def test_added_shards_keep_the_existing_sample_numbers(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "s", samples=40)
    before = names(folder)
    write_shard(folder / "00000-a.tar", "x", "y")  # the name is between those of two existing shards
    write_shard(folder / "a.tar", "z")
    after = names(folder)
    assert after[:40] == before
    assert after[40:] == ["00000-a.tar:x", "00000-a.tar:y", "a.tar:z"]
    shards = Shards.open(folder, ("image", "txt"))
    assert [shards.read(i, "txt") for i in (41, 42)] == [b"y", b"z"]


def test_only_new_and_changed_shards_are_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_shards(tmp_path / "s", samples=40)
    scan = MagicMock(wraps=tar.scan)
    monkeypatch.setattr(tar, "scan", scan)

    def scanned() -> list[str]:
        return [call.args[0].name for call in scan.call_args_list]

    open_index(folder)
    open_index(folder)
    assert scanned() == ["00000.tar", "00001.tar", "00002.tar"]
    write_shard(folder / "00001.tar", "changed")
    write_shard(folder / "00003.tar", "new")
    assert names(folder)[16:18] == ["00001.tar:changed", "00002.tar:000032"]
    assert scanned()[3:] == ["00001.tar", "00003.tar"]


def test_of_several_processes_only_one_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, scan, scanned = write_shards(tmp_path / "s", samples=40), tar.scan, list[str]()

    def slow(path: Path) -> tuple[list[tar.Member], list[tar.Damage]]:
        scanned.append(path.name)
        time.sleep(0.05)
        return scan(path)

    monkeypatch.setattr(tar, "scan", slow)
    with ThreadPoolExecutor() as pool:  # the lock also separates threads
        assert [len(index) for index in pool.map(open_index, [folder] * 3)] == [40] * 3
    assert sorted(scanned) == ["00000.tar", "00001.tar", "00002.tar"]


def test_an_extended_index_equals_a_new_one_that_several_processes_build_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_shards(tmp_path / "s", samples=40)
    first = open_index(folder)
    write_shard(folder / "00009.tar", "new")
    extended = open_index(folder)
    monkeypatch.setattr(indices, "MIN_POOL_BYTES", 0)
    shards = [indices.Shard(s.name, s.size, s.mtime_ns) for s in extended.shards]
    new = build_index(folder, shards, indices.Index([], {}, ""))
    assert extended.digest == new.digest != first.digest and extended.shards == new.shards
    assert all(np.array_equal(extended.arrays[name], new.arrays[name]) for name in indices.ARRAYS)


def test_a_published_index_is_used_after_the_folder_was_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_shards(tmp_path / "s", samples=40)
    write_shard(folder / "00000-a.tar", "x")
    os.utime(folder / "00000-a.tar", (0, 0))
    save(open_index(folder), folder / INDEX_FOLDER)
    moved = folder.rename(tmp_path / "moved")
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(tar, "scan", None)  # a scan would fail
    assert len(open_index(moved)) == 41
    save(open_index(moved), moved / INDEX_FOLDER)  # replaces the first


@pytest.mark.parametrize(
    ("file", "kept"), [("shards.json", 200), ("image_block.npy", None), ("key_bytes.npy", 200), ("key_hash.npy", 0)]
)
def test_a_corrupt_cached_index_is_rebuilt(tmp_path: Path, file: str, kept: int | None) -> None:
    folder = write_shards(tmp_path / "s", samples=40)
    open_index(folder)
    (path,) = (tmp_path / "cache" / "index").glob(f"*/{file}")
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:kept])
    assert load(path.parent) is None
    assert len(names(folder)) == 40
    assert load(path.parent) is not None


def test_an_index_of_another_format_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_shards(tmp_path / "s", samples=40)
    open_index(folder)
    for version in (indices.FORMAT + 1, indices.FORMAT):
        monkeypatch.setattr(indices, "FORMAT", version)
        assert len(open_index(folder)) == 40
    assert len(list((tmp_path / "cache" / "index").glob("*/shards.json"))) == 2


def test_the_files_of_a_replaced_index_stay_for_those_who_have_mapped_them(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    for name in ("0", "1", "2"):
        write_shard(folder / f"{name}.tar", name)
        published = folder / INDEX_FOLDER
        save(open_index(folder), published)
        with (published / "key_hash.npy").open() as mapped:
            write_shard(folder / f"{name}b.tar", f"{name}b")
            save(open_index(folder), published)
            assert os.fstat(mapped.fileno()).st_nlink == 1, "the file was deleted"
    assert len(open_index(folder)) == 6
    assert [path.name for path in folder.iterdir() if path.is_dir()].count(INDEX_FOLDER) == 1
    assert sum(path.is_dir() for path in folder.iterdir()) == 2, "older indices were kept"
