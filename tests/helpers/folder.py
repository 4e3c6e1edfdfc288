"""Small training shards, bad samples and run settings for tests."""

import io
import json
import os
import random
import struct
import tarfile
import zlib
from functools import cache
from pathlib import Path

from PIL import Image

from clipx.config.schema import DataConfig, ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig, TrainConfig

COLOURS = ["red", "green", "blue", "yellow", "white", "black"]


@cache
def jpeg(colour: str, size: int = 48) -> bytes:
    """Return a JPEG of one colour, with one pixel of another colour that depends on the size."""
    image = Image.new("RGB", (size, size), colour)
    image.putpixel((0, 0), (random.Random(size).randrange(256), 0, 0))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG")
    return buffer.getvalue()


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a member with modification time 0, so that equal content gives equal bytes."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write_shards(folder: Path, samples: int, per_shard: int = 16) -> Path:
    """Write shards in img2dataset's layout, with two captions in each .json; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, samples, per_shard):
        with tarfile.open(folder / f"{start // per_shard:05d}.tar", "w") as tar:
            for i in range(start, min(samples, start + per_shard)):
                colour = COLOURS[i % len(COLOURS)]
                add(tar, f"{i:06d}.jpg", jpeg(colour))
                add(tar, f"{i:06d}.txt", f"a {colour} picture {i}".encode())
                captions = [f"a {colour} picture {i}", f"number {i} is {colour}"]
                add(tar, f"{i:06d}.json", json.dumps({"captions": captions}).encode())
    return folder


def png_header(width: int, height: int) -> bytes:
    """Return a PNG that claims this size but has no pixel data. A decoder would allocate memory for all pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def add_bad_samples(folder: Path) -> None:
    """Write corrupt.tar with one bad sample of each kind, and cut.tar, which ends in the middle of its second image."""
    good, text = jpeg("red"), b"a caption"
    kinds = {
        "truncated": (("jpg", good[:400]), ("txt", text)),
        "no_text": (("jpg", good),),
        "empty_text": (("jpg", good), ("txt", b"")),
        "blank_text": (("jpg", good), ("txt", b"  \n")),
        "zeros": (("jpg", bytes(len(good))), ("txt", text)),
        "empty": (("jpg", b""), ("txt", text)),
        "extension": (("jpg", b"GIF89a" + bytes(40)), ("txt", text)),
        "unknown": (("bmp", good), ("txt", text)),
        "bomb": (("png", png_header(20_000, 20_000)), ("txt", text)),
        "latin": (("jpg", good), ("txt", "café".encode("latin-1"))),
    }
    with tarfile.open(folder / "corrupt.tar", "w") as shard:
        for key, members in kinds.items():
            for extension, data in members:
                add(shard, f"{key}.{extension}", data)
    with tarfile.open(folder / "cut.tar", "w") as shard:
        for key in ("before", "cut"):
            add(shard, f"{key}.txt", text)
            add(shard, f"{key}.jpg", good)
    with tarfile.open(folder / "cut.tar") as shard:
        middle = shard.getmember("cut.jpg").offset_data + len(good) // 2
    os.truncate(folder / "cut.tar", middle)


def settings(
    root: Path, epochs: int = 2, save_every: int = 200, processes: int = 1, text: str = "small:bag"
) -> RunConfig:
    """Return the settings of a run on the shards in root/train, with small towers and batches of 8.

    The text tower knows only the words of scenes. With CLIP's 49,408 tokens, e.g. text="open_clip:mini-48", a
    checkpoint has 80 MB, and a run of four steps takes twice as long.
    """
    return RunConfig(
        name="test",
        recipe="test",
        runs=str(root / "runs"),
        data=DataConfig(name="test", source="shards", root=str(root), workers=0),
        model=ModelConfig(image=ImageTowerConfig(name="open_clip:mini-48"), text=TextTowerConfig(name=text)),
        objective={"clip": {}},
        train=TrainConfig(epochs=epochs, batch_size=8, save_every=save_every, processes=processes),
    )
