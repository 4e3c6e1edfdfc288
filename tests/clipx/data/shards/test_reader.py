"""Shards: all samples except those with a corrupt member are found."""

import errno
import io
import os
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import webdataset

from clipx.data.preprocess.images import BadSample
from clipx.data.shards import reader
from clipx.data.shards.reader import Shards
from clipx.data.shards.tar import scan
from clipx.errors import Fault, UserError
from tests.helpers.folder import add, jpeg, write_shards


def test_members_equal_those_that_webdataset_reads(tmp_path: Path) -> None:
    shards = Shards.open(write_shards(tmp_path / "s", samples=40), ("image", "txt", "json"))
    urls = [str(p) for p in sorted((tmp_path / "s").glob("*.tar"))]
    expected = list(webdataset.WebDataset(urls, shardshuffle=False))
    assert len(shards) == len(expected) == 40
    for i, sample in enumerate(expected):
        assert shards.where(i) == f"{Path(sample['__url__']).name}:{sample['__key__']}"
        assert shards.read(i, "image") == sample["jpg"]
        assert shards.read(i, "txt") == sample["txt"]
        assert shards.read(i, "json") == sample["json"]


@pytest.mark.parametrize("tar_format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_are_not_truncated(tmp_path: Path, tar_format: int) -> None:
    name = "ordner/" + "ä" * 120
    with tarfile.open(tmp_path / "0.tar", "w", format=tar_format) as tar:
        info = tarfile.TarInfo(f"{name}.jpg")
        info.mtime = 1.5  # pax adds a record for fractions of a second
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
        add(tar, "short.jpg", b"defg")
    members, damage = scan(tmp_path / "0.tar")
    assert [(m.name, m.size) for m in members] == [(f"{name}.jpg", 3), ("short.jpg", 4)]
    assert not damage


@pytest.mark.parametrize(("header", "where"), [(b"\xff" * 100, "at"), (bytes(512), "before")], ids=["garbage", "zeros"])
def test_a_corrupt_header_loses_only_one_sample_and_is_reported(tmp_path: Path, header: bytes, where: str) -> None:
    folder = write_shards(tmp_path / "s", samples=16)
    path = folder / "00000.tar"
    before = Shards.open(folder, ("image", "txt"))
    start = before.offset(5, "image") - 512
    data = bytearray(path.read_bytes())
    data[start : start + len(header)] = header
    path.write_bytes(data)
    after = Shards.open(folder, ("image", "txt"))
    assert [after.where(i) for i in range(len(after))] == [before.where(i) for i in range(16) if i != 5]
    assert after.read(5, "txt") == b"a red picture 6"
    ((_, damage),) = scan(path)[1]
    assert f"corrupt header {where} byte" in damage and damage in after.problems
    texts = Shards.open(folder, ("txt",))
    assert len(texts) == 16 and texts.content_hash() != after.content_hash()


def test_a_negative_size_is_reported_and_gives_no_endless_loop(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.jpg")
    info.size = -512
    header = info.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "0.tar").write_bytes(header + bytes(1024))
    members, damage = scan(tmp_path / "0.tar")
    assert not members and "corrupt header" in damage[0][1]


def test_the_error_of_an_unusable_folder_gives_the_reason(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        add(tar, "a.jpg", jpeg("red"))
    with pytest.raises(UserError, match="1 samples, none with image and txt"):
        Shards.open(tmp_path, ("image", "txt"))
    (tmp_path / "0.tar").write_bytes(b"no tar" * 1000)
    with pytest.raises(UserError, match="corrupt header"):
        Shards.open(tmp_path, ("image", "txt"))


def descriptors(folder: Path) -> int:
    """Return the number of files in the folder that this process has open."""
    return sum(os.path.realpath(link).startswith(f"{folder.resolve()}/") for link in Path("/proc/self/fd").iterdir())


def test_more_shards_than_the_limit_of_open_files_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_OPEN_FILES", 3)
    folder = write_shards(tmp_path / "s", samples=16, per_shard=2)
    shards = Shards.open(folder, ("image", "txt"))
    for _ in range(2):
        assert [shards.read(i, "txt")[-2:].strip() for i in range(16)] == [str(i).encode() for i in range(16)]
        assert descriptors(folder) == 3
    del shards
    assert descriptors(folder) == 0


def test_a_read_error_is_a_bad_sample_but_a_missing_shard_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_shards(tmp_path / "s", samples=32)
    shards = Shards.open(folder, ("image", "txt"))
    (folder / "00001.tar").unlink()
    shards.prefetch(16, 8)
    with pytest.raises(UserError, match=r"cannot use .*/s/00001\.tar: No such file"):
        shards.read(16, "txt")
    assert shards.read(15, "txt") == b"a yellow picture 15"

    for code, kind in ((errno.EIO, BadSample), (errno.ESTALE, Fault)):

        def failing(*arguments: int, code: int = code) -> bytes:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr("os.pread", failing)
        with pytest.raises(kind, match=rf"cannot .*{os.strerror(code)}"):
            shards.read(15, "txt")


def test_prefetch_includes_all_members_of_a_block_and_treats_each_shard_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block spans both shards; the last sample of the first shard is incomplete."""
    for shard, keys in (("0.tar", "abc"), ("1.tar", "def")):
        with tarfile.open(tmp_path / shard, "w") as tar:
            for key in keys:
                if key != "c":
                    add(tar, f"{key}.jpg", jpeg("red"))
                add(tar, f"{key}.txt", key.encode())
    shards = Shards.open(tmp_path, ("image", "txt"))
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda file, begin, size, advice: asked.append((begin, size)))
    for i in (0, 1, 2, 3):  # a, b, d, e: one block
        shards.prefetch(i, 4)
    assert [begin for begin, _ in asked] == [shards.offset(0, "image"), shards.offset(2, "image")]
    ends = [begin + size for begin, size in asked]
    assert ends[0] > shards.offset(1, "txt") and ends[1] > shards.offset(3, "txt")


def test_threads_keep_one_descriptor_of_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network drive, where opening takes milliseconds and threads open the same file."""

    def slowly(path: Path) -> io.FileIO:
        time.sleep(0.05)
        return io.FileIO(path)

    monkeypatch.setattr(reader, "FileIO", slowly)
    folder = write_shards(tmp_path / "s", samples=8)
    shards = Shards.open(folder, ("image", "txt"))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: shards.read(i, "image"), range(8)))
    assert descriptors(folder) == 1
