"""Small inputs for tests of the evaluation: an encoder made of random projections, and data sets on disk."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from clipx.config.schema import DataConfig
from evaluation.datasets.kinds import AnyDataset
from evaluation.datasets.opening import open_dataset
from evaluation.embedding.features import Loading
from evaluation.runner import evaluate
from evaluation.types import DEFAULTS, Encoder, Result, Score, Settings
from tests.helpers.folder import add

K = TypeVar("K")
WIDTH = 32  # E


def embeddings(n: int, seed: int, dim: int = WIDTH) -> Tensor:
    """Return random unit vectors [n, dim]."""
    return F.normalize(torch.randn(n, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


def preprocess(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(image.resize((8, 8)), dtype=np.float32) / 255.0).permute(2, 0, 1)


def tokenize(texts: list[str]) -> Tensor:
    tokens = torch.zeros(len(texts), 40, dtype=torch.int64)
    for row, text in zip(tokens, texts, strict=True):
        code = torch.tensor(list(text.encode()[:40]))
        row[: len(code)] = code
    return tokens


def encoder(checkpoint: str = "c0") -> Encoder:
    """Return an encoder whose embeddings [n, WIDTH] are fixed random projections of pixels and of characters."""
    pixels, characters = embeddings(3 * 8 * 8, 1), embeddings(256 * 40, 2).view(40, 256, WIDTH)

    def image(batch: Tensor) -> Tensor:
        return F.normalize((batch.flatten(1) - 0.5) @ pixels, dim=1)

    def text(batch: Tensor) -> Tensor:
        return F.normalize(characters[torch.arange(40), batch].sum(dim=1), dim=1)

    provenance = {"checkpoint": checkpoint, "transform": "t0", "tokenizer": "k0", "precision": "fp32"}
    return Encoder("fake", preprocess, tokenize, image, text, provenance, seed=7)


def picture(seed: int) -> bytes:
    """Return a 12 x 12 PNG of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def array(values: list[int]) -> bytes:
    """Return the content of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.array(values))
    return buffer.getvalue()


def shard(path: Path, samples: list[dict[str, bytes]]) -> None:
    """Write a tar of samples; each sample maps extensions to contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for number, sample in enumerate(samples):
            for extension, content in sample.items():
                add(tar, f"s{number:05d}.{extension}", content)


def labelled(folder: Path, classes: int = 3, train: int = 0, test: int = 12, groups: int = 0) -> str:
    """Write a data set in CLIP-benchmark's layout, image i with the label i modulo `classes`; return its spec.

    With `groups`, image i also has a .npy as in DataComp's sets: [group, 7] with group = (i // classes) % groups.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "classnames.txt").write_text("".join(f"thing {c}\n" for c in range(classes)))
    (folder / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\na {c}\n")
    for split, count, first in (("train", train, 10_000), ("test", test, 0)):
        if count:
            samples = [{"cls": str(i % classes).encode(), "png": picture(i + first)} for i in range(count)]
            if groups:
                samples = [one | {"npy": array([i // classes % groups, 7])} for i, one in enumerate(samples)]
            shard(folder / split / "0.tar", samples)
            (folder / split / "nshards.txt").write_text("1\n")
    return f"wds:{folder}"


def captioned(folder: Path, counts: tuple[int, ...] = (2, 5, 1, 3)) -> str:
    """Write images, the i-th with counts[i] captions; return the data set's spec."""
    samples = []
    for i, count in enumerate(counts):
        captions = [f"caption {c} of image {i}" for c in range(count)]
        samples.append({"json": json.dumps({"captions": captions}).encode(), "png": picture(i)})
    shard(folder / "00000.tar", samples)
    return f"captions:{folder}"


def pairs(folder: Path, categories: tuple[str, ...] = ("colour", "count", "colour")) -> str:
    """Write one minimal pair (two images, two texts) for each of these categories; return the data set's spec."""
    samples = []
    for i in range(2 * len(categories)):
        annotation = {"pair": i // 2, "category": categories[i // 2]}
        samples.append({"txt": f"text {i}".encode(), "json": json.dumps(annotation).encode(), "png": picture(i)})
    shard(folder / "00000.tar", samples)
    return f"pairs:{folder}"


def opened(spec: str, kind: type[K], settings: Settings = DEFAULTS) -> K:
    """Open a data set that must be of this kind."""
    data = open_dataset(spec, settings)
    assert isinstance(data, kind)
    return data


def scored(task: Any, data: AnyDataset, *features: Tensor) -> Score:
    """Score features in the order of the task's requests."""
    score: Score = task.score(data, dict(zip(task.requests(data), features, strict=True)))
    return score


def run(
    root: Path,
    specs: list[str],
    tasks: list[str],
    model: Encoder | None = None,
    force: bool = False,
    settings: Settings = DEFAULTS,
    training: DataConfig | None = None,
) -> list[Result]:
    """Evaluate a model, by default `encoder()`, and write its results to root/out; return them."""
    loading = Loading(8, 0, "cpu", root / "features")
    return evaluate(model or encoder(), specs, tasks, root / "out", loading, force, settings, training)
