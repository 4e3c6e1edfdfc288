"""Embeddings of data sets. Each image or text is embedded once; a content-addressed cache keeps the embeddings.

The name of a cached file is a hash of the model (checkpoint, transform, tokenizer, precision), the content of the
data, the view and the variant. If any of them changes, the file's name changes.

Shapes: n images or texts, embeddings of width E.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import DataLoader

from clipx import distributed
from clipx.data.features import Items, content_of, open_features
from clipx.data.loading.faults import start_worker
from clipx.data.loading.features import text_features
from clipx.errors import Fault, UserError
from clipx.models.frozen import FrozenTower
from clipx.utils.files import content_hash, new_file
from clipx.utils.terminal import ProgressBar
from evaluation import types
from evaluation.types import Device, Encoder, FeatureRequest, Features

FORMAT = "1"  # version of the cached files
INPUT_CACHE = 512 * 2**20  # bytes of preprocessed images and tokens that a process keeps; larger sets are not kept
Pixels = Tensor | UserError | Fault  # a batch of images, or why one of them cannot be read


_inputs: OrderedDict[Hashable, list[Tensor]] = OrderedDict()  # the cache of inputs, least recently used first


@dataclass(frozen=True)
class Loading:
    """Settings of the embedding that do not affect its result."""

    batch_size: int  # images or texts; the last batch may be smaller
    workers: int  # processes that decode and preprocess images; 0: this process does
    device: Device  # of the encoder's towers
    cache_dir: Path | None = None  # gets a safetensors file per request; None: no cache, and no check for NaN


def extract(
    encoder: Encoder,
    dataset_by_name: Mapping[str, types.Dataset],
    requests: Iterable[FeatureRequest],
    loading: Loading,
    alone: bool = False,
) -> Features:
    """Return the requested embeddings, float32 [n, E] on the CPU, rows in the data set's order.

    All ranks must call this with the same requests; each embeds a part. The batches are those of a single process, so
    that the embeddings are the same. Rank 0 returns all embeddings; the others too without a cache, else none.

    Keys of `dataset_by_name` are `Dataset.name`, as in the requests. `alone`: only this rank calls and embeds all rows.

    Raises UserError on all ranks: a corrupt image or an embedding that is not finite; the message names the data set.
    """
    features: Features = {}
    cache, (rank, world) = loading.cache_dir, (0, 1) if alone else (distributed.rank(), distributed.world_size())
    if cache is not None:
        _cache_limit()  # here, so that all ranks raise its error
    with ProgressBar(active=rank == 0 and cache is not None) as progress:
        for group in _by_view(requests):
            dataset, paths = dataset_by_name[group[0].dataset], dict[FeatureRequest, Path]()
            # features of a frozen tower are stored elsewhere, see `_rows`
            if cache is not None and rank == 0 and frozen_tower(encoder, group[0]) is None:
                paths = {one: cache / f"{cache_key(encoder, dataset, one)}.safetensors" for one in group}
            cached = {request: found for request, path in paths.items() if (found := _read(path)) is not None}
            missing = [request for request in group if request not in cached]
            if world > 1:
                missing = distributed.broadcast_object(missing)
            new: Features = {}
            if missing:
                rows = share(_length(dataset, group[0]), loading.batch_size, rank, world)
                embed = partial(_embed, encoder, dataset, missing, rows, loading, progress)
                new = embed() if world == 1 else _together(embed, missing, loading.device)
            for request, embedded in new.items():
                if cache is not None:
                    _check_finite(embedded, encoder, request)
                if request in paths:
                    _write(paths[request], embedded)
            if rank == 0 or cache is None:
                features |= cached | new
    return features


def _by_view(requests: Iterable[FeatureRequest]) -> list[list[FeatureRequest]]:
    """Group distinct requests that read the same images or texts and differ only in their variant."""
    groups: dict[tuple[str, str, str], list[FeatureRequest]] = {}
    for request in dict.fromkeys(requests):
        groups.setdefault((request.dataset, request.split, request.view), []).append(request)
    return list(groups.values())


def _together(embed: Callable[[], Features], group: list[FeatureRequest], device: Device) -> Features:
    """Embed this rank's rows, gather those of all ranks, and return [n, E] per request on the CPU of all ranks."""
    local: Features = {}
    problem = ""
    try:
        local = embed()
    except UserError as error:
        problem = str(error)
    results = distributed.gather_objects((problem, [embedded.shape[1] for embedded in local.values()]))
    for problem, _ in results:
        if problem:
            raise UserError(problem)
    gathered = {}
    for position, request in enumerate(group):
        width = max(widths[position] for _, widths in results)  # E; a rank without a batch reports 0
        gathered[request] = distributed.gather(local[request].view(-1, width).to(device)).cpu()
    return gathered


def share(count: int, batch_size: int, rank: int, world: int) -> range:
    """Return the rows of one of `world` ranks: whole batches in order; together, the ranks have each row once."""
    batches = -(-count // batch_size)
    first, last = (min(count, batches * r // world * batch_size) for r in (rank, rank + 1))
    return range(first, last)


def cache_key(encoder: Encoder, dataset: types.Dataset, request: FeatureRequest) -> str:
    """Return a hash of model, content of the data, split, view and variant, but not of the data's location."""
    fingerprint = dataset.fingerprint(request.split, request.view)
    variant = [request.variant] if request.variant else []
    return content_hash(
        [FORMAT, sorted(encoder.provenance.items()), fingerprint, request.split, request.view, *variant]
    )


def _length(dataset: types.Dataset, request: FeatureRequest) -> int:
    images = request.view == "images"
    return len(dataset.images(request.split)) if images else len(dataset.texts(request.split, request.view))


@torch.no_grad()
def _embed(
    encoder: Encoder,
    dataset: types.Dataset,
    group: list[FeatureRequest],
    rows: range,
    loading: Loading,
    progress: ProgressBar,
) -> Features:
    """Return [len(rows), E] for each request from one pass over their images or texts; [0, 0] for no rows."""
    first = group[0]
    images = first.view == "images"
    default, variants = (encoder.image, encoder.image_variants) if images else (encoder.text, encoder.text_variants)
    batches: Iterable[Tensor]
    preparation = None
    tower = frozen_tower(encoder, first)
    if isinstance(dataset, types.VectorsOnly) and (tower is None or tower.versions):  # not embeddings:WIDTH
        raise UserError(f"datasets={dataset.name} has vectors only, and {encoder.name} takes images and texts")
    if tower is not None:
        take, size = _rows(encoder, dataset, first, loading), loading.batch_size
        batches = (take(np.array(rows[i : i + size])) for i in range(0, len(rows), size))
    elif images:
        batches = _image_batches(dataset.images(first.split), rows, encoder.preprocess, loading)
        preparation = encoder.provenance.get("transform")
    else:
        size = loading.batch_size
        texts = dataset.texts(first.split, first.view)[rows.start : rows.stop]
        batches = (encoder.tokenize(texts[i : i + size]) for i in range(0, len(texts), size))
        preparation = encoder.provenance.get("tokenizer")
    if preparation is not None:  # without it, the inputs of two encoders cannot be told apart
        content = dataset.fingerprint(first.split, first.view)
        batches = cached_inputs((content, first.split, first.view, preparation, rows, loading.batch_size), batches)
    embeds = {request: variants[request.variant] if request.variant else default for request in group}
    embedded: dict[FeatureRequest, list[Tensor]] = {request: [] for request in group}
    progress.start(f"{first.dataset} {first.split} {first.view}", len(rows))
    for batch in batches:
        on_device = batch.to(loading.device)
        for request, embed_batch in embeds.items():
            embedded[request].append(embed_batch(on_device).float().cpu())
        progress.advance(len(batch))
    assert all(sum(map(len, parts)) == len(rows) for parts in embedded.values())
    return {request: torch.cat(parts) if parts else torch.empty(0, 0) for request, parts in embedded.items()}


def frozen_tower(encoder: Encoder, request: FeatureRequest) -> FrozenTower[Any] | None:
    """Return the frozen tower whose stored features the encoder takes for a request; None: pixels or tokens."""
    return encoder.frozen_towers.get("image" if request.view == "images" else "text")


def _rows(
    encoder: Encoder, dataset: types.Dataset, request: FeatureRequest, loading: Loading
) -> Callable[[NDArray[np.int64]], Tensor]:
    """Embed the images or texts of a view that are missing; return a function of item numbers to stored features.

    Images are known by the hash of the set and their number, because not every set has files; texts by their content.

    Raises UserError: a corrupt image.
    """
    tower, device = frozen_tower(encoder, request), torch.device(loading.device)
    assert tower is not None
    if isinstance(dataset, types.VectorsOnly):
        width = dataset.vectors(request.view, np.array([0])).shape[1]
        if (width,) != tower.shape:
            raise UserError(f"datasets={dataset.name} has vectors of width {width}, not that of {tower.name}")
        return partial(dataset.vectors, request.view)
    if request.view != "images":
        return text_features(tower, encoder.tokenize, dataset.texts(request.split, request.view), device).take
    images = dataset.images(request.split)
    fingerprint = dataset.fingerprint(request.split, request.view)
    hashes = np.array([content_of(f"{fingerprint} {i}".encode()) for i in range(len(images))], np.uint64)

    def inputs(numbers: Sequence[int]) -> list[Tensor | None]:
        with ThreadPoolExecutor(max(loading.workers, 1)) as pool:
            return list(pool.map(lambda number: encoder.preprocess(images[number]), numbers))

    return open_features(tower, Items(f"{len(images):,} images of {dataset.name}", hashes, inputs), device).take


def cached_inputs(key: Hashable, batches: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the batches in the cache of inputs; if it has none for `key`, those of `batches`, and cache a small set.

    `clipx reproduce` evaluates many runs in one process, and log.evaluate_every evaluates a run at many steps: decoding
    images takes longer than embedding them with a small model. Equal keys must mean equal batches. Batches are cached
    only after the caller has taken all of them.
    """
    if key in _inputs:
        _inputs.move_to_end(key)
        yield from _inputs[key]
        return
    new: list[Tensor] = []
    size = 0  # bytes
    for batch in batches:
        size += batch.nbytes
        if size <= INPUT_CACHE:
            # copy: a batch in the shared memory of a loader process occupies a file descriptor
            new.append(batch.clone() if batch.is_shared() else batch)  # type: ignore[no-untyped-call]
        else:
            new.clear()
        yield batch
    if size <= INPUT_CACHE:
        while _inputs and size + sum(batch.nbytes for of_key in _inputs.values() for batch in of_key) > INPUT_CACHE:
            _inputs.popitem(last=False)
        _inputs[key] = new


def _check_finite(embedded: Tensor, encoder: Encoder, request: FeatureRequest) -> None:
    bad = int((~embedded.isfinite()).any(dim=1).sum())
    if bad:
        where = f"{bad} of {len(embedded)} {request.view} of {request.dataset} {request.split}"
        raise UserError(f"{encoder.name} gives NaN or infinite embeddings for {where}: use an earlier checkpoint")


def _preprocessed(images: Sequence[Image], preprocess: Callable[[Image], Tensor], rows: list[int]) -> Pixels:
    """Decode and preprocess the images of a batch, in one of the loader's processes."""
    try:
        return torch.stack([preprocess(images[row]) for row in rows])
    except (UserError, Fault) as error:  # if it were raised here, the loader would add a traceback to the message
        return error


def _image_batches(
    images: Sequence[Image], rows: range, preprocess: Callable[[Image], Tensor], loading: Loading
) -> Iterable[Tensor]:
    """Yield batches, without drawing from the global random state of a training run in this process.

    Signals to the run's process group do not reach the loader's processes.
    """
    loader: Iterable[Pixels] = DataLoader(
        rows,  # type: ignore[arg-type]  # any sequence of items serves
        loading.batch_size,
        num_workers=loading.workers,
        collate_fn=partial(_preprocessed, images, preprocess),
        worker_init_fn=start_worker,
        # as in training; Python 3.14's own choice would pickle the data set
        multiprocessing_context="fork" if loading.workers else None,
        generator=torch.Generator(),
    )
    for batch in loader:
        if not isinstance(batch, Tensor):
            raise batch
        yield batch


def _read(path: Path) -> Tensor | None:
    try:
        embeddings = load_file(path)["embeddings"]
    except (FileNotFoundError, SafetensorError, KeyError):  # another process may remove the file at any time
        return None
    with suppress(OSError):  # of a shared cache, only a file's owner may change its time
        os.utime(path)  # recently used
    return embeddings


def _write(path: Path, embeddings: Tensor) -> None:
    with new_file(path) as temporary:
        save_file({"embeddings": embeddings.contiguous()}, temporary)
    _remove_oldest(path.parent)


def _cache_limit() -> float:
    """Return $CLIPX_FEATURES_GB (default 10) in bytes. One evaluation of a point-set model takes a gigabyte."""
    limit = os.environ.get("CLIPX_FEATURES_GB") or "10"
    if not limit.replace(".", "", 1).isdigit():
        raise UserError(f"CLIPX_FEATURES_GB={limit} is not a number of gigabytes")
    return float(limit) * 1e9


def _remove_oldest(cache_dir: Path) -> None:
    """Remove the least recently used files until at most `_cache_limit` bytes are left."""
    used, limit = 0, _cache_limit()
    with suppress(FileNotFoundError):  # another process removes files too
        for path in sorted(cache_dir.glob("*.safetensors"), key=lambda path: path.stat().st_mtime, reverse=True):
            used += path.stat().st_size
            if used > limit:
                path.unlink()
