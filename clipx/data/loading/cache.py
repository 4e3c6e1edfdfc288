"""Decoded images and tokenized captions in memory (data.cache=memory).

Samples, order and random draws are the same as without the cache.

The pixels are in a memory-mapped file in the cache folder, so that all processes of a machine share one copy, also in
containers with a small /dev/shm. Each process that uses a cache holds a lock on its sizes.npy, which the system
releases if the process dies. The last process that uses a cache removes it. If that process is killed, the next process
that opens any pixel cache removes it.
"""

import fcntl
import json
import platform
import random
import shutil
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from clipx.config.schema import DataConfig
from clipx.data.features import Tower
from clipx.data.loading.collate import DecodedSample, HostBatch, collate, sample_generator
from clipx.data.loading.features import CPU, FeatureImages, FeatureTexts, given_texts, image_features, text_features
from clipx.data.preprocess.captions import Keywords, stripped, usable
from clipx.data.preprocess.images import BadSample, open_image, to_rgb
from clipx.data.preprocess.on_device import Crops
from clipx.data.preprocess.tokenizer import Tokenizer, build_tokenizer
from clipx.data.preprocess.transforms import TrainTransform
from clipx.data.sampler import SampleKey
from clipx.data.sources.base import PairSource
from clipx.data.sources.embeddings import EmbeddingPairs
from clipx.data.sources.streams import Stream
from clipx.errors import UserError, prefixed
from clipx.types import Tokens
from clipx.utils.device import check_room
from clipx.utils.files import cache_home, content_hash, lock, new_folder

KEPT = 4  # number of data sets whose images (and captions) a process keeps for its next runs
Array = NDArray[Any]


@dataclass
class PixelImages:
    """The n images of a source, transformed for training.

    They are central squares of S x S pixels if the transform is `fixed`, and a batch is then copied and flipped
    together; else whole images.
    """

    transform: TrainTransform
    data: Array  # uint8; squares: [n, 3, S, S]; whole images: [bytes], each image [H, W, 3] at its offset
    offsets: Array  # int64 [n + 1], first byte of each whole image, then the number of bytes
    sizes: Array  # int32 [n, 2], width and height of the encoded images; 0 if an image cannot be opened
    errors: dict[int, str]  # image number -> reason why the image is bad
    image_of: Array | None  # image number of each sample; None: the sample id

    def __post_init__(self) -> None:
        self.batched = self.transform.fixed  # True: a batch is taken together
        self.draws = self.transform.fixed and self.transform.flip  # True: `draw` draws random numbers

    def numbers(self, ids: Array) -> Array:
        """Return the image numbers of samples."""
        return ids if self.image_of is None else self.image_of[ids]

    def draw(self, number: int, generator: random.Random) -> int:
        """Draw the flip, 0 or 1, as `TrainTransform` does: after a crop box, which is unused here."""
        width, height = self.sizes[number].tolist()
        return int(self.transform.draw(width, height, generator)[1])

    def batch(self, numbers: Array, draws: Sequence[int] | None) -> Tensor:
        """Return the images of a batch together, only if `batched`. `draws`: 1 for an image to flip; None: no flips."""
        pixels = torch.from_numpy(self.data[numbers])
        if draws is not None:
            flips = torch.tensor(draws, dtype=torch.bool)
            pixels[flips] = pixels[flips].flip(3)
        return pixels

    def one(self, number: int, generator: random.Random) -> tuple[Tensor, Crops | None]:
        """Return an image, and None if it is transformed, else the crop that the device makes. Raises BadSample."""
        if self.transform.fixed:
            return self.batch(np.array([number]), [self.draw(number, generator)])[0], None
        width, height = self.sizes[number]
        whole = self.data[self.offsets[number] : self.offsets[number + 1]].reshape(height, width, 3)
        return self.transform.for_device(torch.from_numpy(whole), generator)


CachedImages = PixelImages | FeatureImages

# key -> images, locked file; least recently used first
_opened: OrderedDict[str, tuple[PixelImages, Any]] = OrderedDict()


def pixels_home() -> Path:
    """Return the folder of this machine's files. Locks may not hold between machines that share a cache folder."""
    return cache_home() / "pixels" / platform.node()


def open_pixels(source: PairSource, transform: TrainTransform) -> PixelImages:
    """Return the images of a source; decode them unless a process of this machine has them open already.

    Raises UserError if the images do not fit into the free memory or disk space.
    """
    fixed = [transform.size, transform.interpolation] if transform.fixed else []
    key = content_hash([source.fingerprint, source.image_sizes(), *fixed])
    if key not in _opened:
        while len(_opened) >= KEPT:
            _opened.popitem(last=False)[1][1].close()
        if not _opened:
            Finalize(None, _release, exitpriority=10)  # atexit functions do not run in processes of a pool
        _opened[key] = _open(pixels_home() / key, source, transform)
    _opened.move_to_end(key)
    return replace(_opened[key][0], transform=transform)


def _release() -> None:
    """Close all files, and remove those that no other process uses."""
    while _opened:
        _opened.popitem()[1][1].close()
    with lock(f"pixels {platform.node()}"):
        _remove_unused(pixels_home())


def _open(folder: Path, source: PairSource, transform: TrainTransform) -> tuple[PixelImages, Any]:
    with lock(f"pixels {platform.node()}"):  # one process of this machine decodes, the others wait
        _remove_unused(folder.parent)
        if not folder.is_dir():
            _write(folder, source, transform)
        handle = (folder / "sizes.npy").open("rb")
        fcntl.flock(handle, fcntl.LOCK_SH)
    sizes, image_of = np.load(folder / "sizes.npy"), source.image_of()
    errors = {int(number): text for number, text in json.loads((folder / "errors.json").read_text()).items()}
    # "c", copy on write, because torch warns about read-only arrays; nothing writes to it
    data: Array = np.memmap(folder / "pixels", np.uint8, "c")
    if transform.fixed:
        data = data[:-1].reshape(len(sizes), 3, transform.size, transform.size)
    return PixelImages(transform, data, _offsets(sizes), sizes, errors, image_of), handle


def _offsets(sizes: Array) -> Array:
    """Return the first byte of each whole image, then the number of bytes."""
    return np.concatenate([[0], np.cumsum(3 * sizes.prod(axis=1, dtype=np.int64))])


def _remove_unused(folder: Path) -> None:
    """Remove the caches in `folder` that no process uses; the caller holds the lock of this machine."""
    for path in folder.glob("*"):
        try:
            # r+b, because NFS refuses an exclusive lock on a file opened for reading
            with (path / "sizes.npy").open("r+b") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:  # the unfinished folder of a killed process
            shutil.rmtree(path, ignore_errors=True)
        except OSError:  # in use, or the file system has no locks
            continue


def _write(folder: Path, source: PairSource, transform: TrainTransform) -> None:
    """Decode every image once, and write the pixels, sizes and errors to `folder`."""
    image_of = source.image_of()
    # the first sample of each image
    sample_ids = range(len(source)) if image_of is None else np.unique(image_of, return_index=True)[1].tolist()
    n = len(sample_ids)
    sizes = np.zeros((n, 2), np.int32)
    errors: dict[int, str] = {}

    def each(action: Callable[[int, Image.Image], None]) -> None:
        for number, sample_id in enumerate(sample_ids):
            try:
                action(number, open_image(source.image(sample_id)))
            except BadSample as error:
                errors[number] = str(error)

    def measure(number: int, image: Image.Image) -> None:
        sizes[number] = image.size

    each(measure)  # decodes no pixels
    offsets = np.arange(n + 1) * 3 * transform.size**2 if transform.fixed else _offsets(sizes)
    folder.parent.mkdir(parents=True, exist_ok=True)
    check_room(int(offsets[-1]), folder.parent, f"data.cache=memory with {n:,} decoded images")
    with new_folder(folder) as temporary:
        with (temporary / "pixels").open("wb") as file:

            def decode(number: int, image: Image.Image) -> None:
                pixels = transform.central_square(image).numpy() if transform.fixed else np.array(to_rgb(image))
                file.seek(int(offsets[number]))
                file.write(pixels.tobytes())

            each(decode)
            file.truncate(int(offsets[-1]) + 1)  # one more byte: an empty file cannot be mapped
        np.save(temporary / "sizes.npy", sizes)
        (temporary / "errors.json").write_text(json.dumps(errors))


Texts = Tensor | FeatureTexts  # as a text tower takes them: tokens, or features
Encode = Callable[[list[str]], Texts]


@dataclass
class CaptionCache:
    """Tokens (or features) and labels of all captions of n samples, sample by sample."""

    starts: Array  # int64 [n + 1], caption number of each sample's first caption, then the total number
    text: Texts  # [captions], each int64 [L], L = context length
    label: Tensor  # int64 [captions], keyword label, 0 = none
    errors: dict[int, str]  # caption number -> reason why the caption is bad
    negative: Texts | None  # [captions], the negative of each caption


_captions: OrderedDict[str, CaptionCache] = OrderedDict()  # of this process, least recently used first


class CachedSamples(Dataset[HostBatch]):
    """Map-style data set: list of (epoch, id) -> batch, built from cached images and captions."""

    def __init__(self, source: PairSource, images: CachedImages, captions: CaptionCache, seed: int) -> None:
        self.source, self.images, self.captions, self.seed = source, images, captions, seed

    def __getitem__(self, keys: list[SampleKey]) -> HostBatch:
        ids = np.array([sample_id for _, sample_id in keys], np.int64)
        images = self.images.numbers(ids)
        captions, draws = self._draw(keys, ids, images)
        all_good = self.images.errors.keys().isdisjoint(images.tolist())
        all_good = all_good and self.captions.errors.keys().isdisjoint(captions.tolist())
        if not (self.images.batched and all_good):
            return collate([self.sample(epoch, sample_id) for epoch, sample_id in keys])
        rows, cached = torch.from_numpy(captions), self.captions
        negative = None if cached.negative is None else cached.negative[rows]
        pixels = self.images.batch(images, draws)
        return HostBatch(torch.from_numpy(ids), pixels, cached.text[rows], cached.label[rows], [], negative)

    def sample(self, epoch: int, sample_id: int) -> DecodedSample:
        """Return one preprocessed sample; if it is bad, its `error` gives the reason."""
        generator = sample_generator(self.seed, epoch, sample_id)
        where = self.source.where(sample_id)
        image = int(self.images.numbers(np.array(sample_id)))
        caption = self._caption(sample_id, generator)
        if reason := self.captions.errors.get(caption) or self.images.errors.get(image):
            return DecodedSample(sample_id, error=f"{where}: {reason}")
        try:
            pixels, crops = self.images.one(image, generator)
        except BadSample as error:
            return DecodedSample(sample_id, error=f"{where}: {error}")
        cached = self.captions
        negative = None if cached.negative is None else cached.negative[caption]
        text, label = cached.text[caption], int(cached.label[caption])
        return DecodedSample(sample_id, pixels, text, label, negative_text=negative, crops=crops)

    def _draw(self, keys: list[SampleKey], ids: Array, images: Array) -> tuple[Array, list[int] | None]:
        """Return each sample's caption number, and each image's draw (None: nothing is drawn for images)."""
        captions, draws = self.captions.starts[ids], None
        if self.source.draws_caption or self.images.draws:
            generators = [sample_generator(self.seed, *key) for key in keys]
            captions = np.array([self._caption(i, g) for i, g in zip(ids.tolist(), generators, strict=True)])
            if self.images.draws:
                draws = [self.images.draw(i, g) for i, g in zip(images.tolist(), generators, strict=True)]
        return captions, draws

    def _caption(self, sample_id: int, generator: random.Random) -> int:
        """Return the number of a sample's caption, drawn as `PairSource.caption` draws it."""
        first, end = map(int, self.captions.starts[sample_id : sample_id + 2])
        return first + generator.randrange(end - first) if self.source.draws_caption else first


def open_captions(
    source: PairSource,
    tokens: Tokens,
    tokenizer: Tokenizer,
    keywords: Keywords,
    negatives: bool,
    tower: Tower | None = None,
    device: torch.device = CPU,
) -> CaptionCache:
    """Return tokens of all captions, or with `tower` their features, embedded on `device` where they are missing.

    They come from memory if this process has encoded them for an earlier run.
    """
    settings = [tokens.tokenizer, tokens.context_length, tokens.clean, keywords.words, keywords.digits]
    features = [] if tower is None else [tower.digest, tower.precision]
    key = content_hash([source.fingerprint, source.draws_caption, *settings, negatives, *features])
    if key not in _captions:
        while len(_captions) >= KEPT:
            _captions.popitem(last=False)
        if isinstance(source, EmbeddingPairs):
            _captions[key] = _given_captions(source, keywords, tower)
        else:
            encode = tokenizer if tower is None else partial(text_features, tower, tokenizer, device=device)
            _captions[key] = _encode(source, keywords, encode, negatives)
    _captions.move_to_end(key)
    return _captions[key]


def _given_captions(source: EmbeddingPairs, keywords: Keywords, tower: Tower | None) -> CaptionCache:
    """Return the vectors of an embedding's texts; keywords are found in the captions of its metadata."""
    assert tower is not None, "checked by clipx.config.presets"
    if keywords.words and not source.texts:
        raise UserError("data.keywords needs captions, which the metadata of data.root lacks")
    n = len(source)
    label = torch.tensor([keywords(text) for text in source.texts]) if keywords.words else torch.zeros(n).long()
    return CaptionCache(np.arange(n + 1), given_texts(source, tower), label, {}, None)


def embed_pairs(
    config: DataConfig, source: PairSource | Stream, towers: Mapping[str, Any], device: torch.device
) -> dict[str, tuple[Tensor, Tensor]]:
    """Embed the images and captions that are missing; return the mean and standard deviation of the features by side.

    Raises UserError: the features do not fit on the disk.
    """
    assert not source.streaming, "open_source refuses data.features=true"
    statistics = {}
    if "image" in towers:
        images = image_features(config, source, towers["image"], device)
        with prefixed("features of images"):
            statistics["image"] = images.features.statistics()
    if "text" in towers:
        tokens = towers["text"].inputs
        keywords = Keywords(config.keywords, config.keyword_digits)
        tokenizer, tower = build_tokenizer(tokens), towers["text"]
        captions = open_captions(source, tokens, tokenizer, keywords, False, tower, device)
        assert isinstance(captions.text, FeatureTexts)
        with prefixed("features of texts"):
            statistics["text"] = captions.text.features.statistics()
    return statistics


def _encode(source: PairSource, keywords: Keywords, encode: Encode, negatives: bool) -> CaptionCache:
    starts = np.zeros(len(source) + 1, np.int64)
    captions: list[str] = []
    of_captions: list[str] = []  # negative of each caption
    errors: dict[int, str] = {}
    for sample_id in range(len(source)):
        try:
            found = usable(source.captions(sample_id))
        except BadSample as error:
            found, errors[len(captions)] = [""], str(error)
        for caption in found if source.draws_caption else found[:1]:
            negative = ""
            try:
                caption = stripped(caption)
                negative = source.negative(sample_id, caption) if negatives else ""
            except BadSample as error:
                errors.setdefault(len(captions), str(error))
            captions.append(caption)
            of_captions.append(negative)
        starts[sample_id + 1] = len(captions)
    label = torch.tensor([keywords(caption) for caption in captions])
    return CaptionCache(starts, encode(captions), label, errors, encode(of_captions) if negatives else None)
