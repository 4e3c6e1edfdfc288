"""Embeddings of data sets: every one that is asked for once, cached by what it was made from.

The name of a cached file is a hash of the model (checkpoint, transform, tokenizer, precision), of the content
of the data and of the view, so a changed one is never served from the cache.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from PIL.Image import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from clipx.errors import UserError
from evaluation import types
from evaluation.folder import content_hash
from evaluation.types import Encoder, FeatureRequest, Features

FORMAT = "1"  # of the cached files
Pixels = tuple[Tensor | None, str]  # an image, or nothing and what is wrong with it


@torch.no_grad()
def extract(
    encoder: Encoder,
    dataset_by_name: Mapping[str, types.Dataset],
    requests: Iterable[FeatureRequest],
    cache_dir: Path,
    batch_size: int,
    workers: int,
    device: torch.device | str,
) -> Features:
    """The embeddings that the tasks ask for, float32 [n, E] on the CPU, rows in the data set's order.

    Args:
        encoder: its `image` and `text` get tensors on `device`.
        dataset_by_name: by `Dataset.name`, as the requests name them.
        requests: each is extracted once, however often it is there.
        cache_dir: for the embeddings, one safetensors file a request.
        batch_size: images or texts at once; the last batch may be smaller.
        workers: processes that decode and preprocess images; 0 does it in this one.

    Raises:
        UserError: an unusable image, or an embedding that is not finite; names the data set.
    """
    features = {}
    with _progress() as progress:
        for request in dict.fromkeys(requests):
            dataset = dataset_by_name[request.dataset]
            path = cache_dir / f"{cache_key(encoder, dataset, request)}.safetensors"
            found = _read(path)
            if found is None:
                found = _embed(encoder, dataset, request, batch_size, workers, device, progress)
                _write(path, found)
            features[request] = found
    return features


def cache_key(encoder: Encoder, dataset: types.Dataset, request: FeatureRequest) -> str:
    """Changes with the model's provenance, the data's content, the split or the view; not with paths."""
    fingerprint = dataset.fingerprint(request.split, request.view)
    return content_hash([FORMAT, sorted(encoder.provenance.items()), fingerprint, request.split, request.view])


def _embed(
    encoder: Encoder,
    dataset: types.Dataset,
    request: FeatureRequest,
    batch_size: int,
    workers: int,
    device: torch.device | str,
    progress: Progress,
) -> Tensor:
    batches: Iterable[Tensor]
    if request.view == "images":
        images = dataset.images(request.split)
        count, embed = len(images), encoder.image
        batches = _image_batches(images, encoder.preprocess, batch_size, workers)
    else:
        texts = dataset.texts(request.split, request.view)
        count, embed = len(texts), encoder.text
        batches = (encoder.tokenize(texts[i : i + batch_size]) for i in range(0, count, batch_size))
    bar = progress.add_task(f"{request.dataset} {request.split} {request.view}", total=count)
    rows = []
    for batch in batches:
        rows.append(embed(batch.to(device)).float().cpu())
        progress.advance(bar, len(batch))
    embedded = torch.cat(rows)
    assert len(embedded) == count, (len(embedded), count)
    bad = int((~embedded.isfinite()).any(dim=1).sum())
    if bad:
        what = f"{bad} of {count} {request.view} of {request.dataset} {request.split}"
        raise UserError(f"{encoder.name} gives NaN or infinite embeddings for {what}: take an earlier checkpoint")
    return embedded


class _Preprocessed(Dataset[Pixels]):
    """Decodes and preprocesses in the loader's processes."""

    def __init__(self, images: Sequence[Image], preprocess: Callable[[Image], Tensor]) -> None:
        self.images = images
        self.preprocess = preprocess

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Pixels:
        try:
            return self.preprocess(self.images[index]), ""
        except UserError as error:  # raised in a worker, it would come out wrapped in a traceback
            return None, str(error)


def _collate(samples: list[Pixels]) -> Pixels:
    problem = next((problem for _, problem in samples if problem), "")
    pixels = [image for image, _ in samples if image is not None]
    return (None, problem) if problem else (torch.stack(pixels), "")


def _image_batches(
    images: Sequence[Image], preprocess: Callable[[Image], Tensor], batch_size: int, workers: int
) -> Iterable[Tensor]:
    data = _Preprocessed(images, preprocess)
    for batch, problem in DataLoader(data, batch_size, num_workers=workers, collate_fn=_collate):
        if batch is None:
            raise UserError(problem)
        yield batch


def _read(path: Path) -> Tensor | None:
    """The cached embeddings; nothing where there are none or the file is damaged (it is made again)."""
    if not path.is_file():
        return None
    try:
        return load_file(path)["embeddings"]
    except (SafetensorError, KeyError):
        return None


def _write(path: Path, embeddings: Tensor) -> None:
    """In one step: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    save_file({"embeddings": embeddings.contiguous()}, temporary)
    temporary.replace(path)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
