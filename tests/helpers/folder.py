"""Small training data and settings for tests."""

import io
import json
import random
import tarfile
from pathlib import Path

from PIL import Image

from clipx.config.schema import DataConfig, ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig, TrainConfig

COLOURS = ["red", "green", "blue", "yellow", "white", "black"]


def jpeg(colour: str, size: int = 48) -> bytes:
    """A plain image with a little noise, so that no two files are equal."""
    image = Image.new("RGB", (size, size), colour)
    image.putpixel((0, 0), (random.Random(size).randrange(256), 0, 0))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG")
    return buffer.getvalue()


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """A member with fixed times, as every member of these tests."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write_shards(folder: Path, samples: int, per_shard: int = 16) -> Path:
    """`samples` pairs as img2dataset writes them, with two captions in each .json."""
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


def settings(root: Path, epochs: int = 2, save_every: int = 200, processes: int = 1) -> RunConfig:
    """A run of a few steps with the small towers on the shards of root/train."""
    tower = "open_clip:mini-48"
    return RunConfig(
        name="test",
        recipe="test",
        runs=str(root / "runs"),
        data=DataConfig(name="test", source="shards", root=str(root), workers=0),
        model=ModelConfig(image=ImageTowerConfig(name=tower), text=TextTowerConfig(name=tower)),
        objective={"clip": {}},
        train=TrainConfig(epochs=epochs, batch_size=8, save_every=save_every, processes=processes),
    )
