"""Features of the training pairs: embed those that are missing, and take those of a batch (data.features=true)."""

import errno
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipx.config.schema import DataConfig
from clipx.data.features import BLOCK, UNUSABLE, Features, Items, Tower, content_of, open_features
from clipx.data.preprocess.images import BadSample, decode, open_image
from clipx.data.preprocess.tokenizer import Tokenizer
from clipx.data.preprocess.transforms import Normalise, TrainTransform, evaluation_transform
from clipx.data.sources.base import PairSource
from clipx.data.sources.embeddings import EmbeddingPairs
from clipx.errors import UserError
from clipx.types import text_lengths
from clipx.utils.device import loader_processes
from clipx.utils.files import cache_home, content_hash, lock, new_file

CPU = torch.device("cpu")
Array = NDArray[Any]


@dataclass
class FeatureImages:
    """Features of the images of a source; `row_of` is the row of each image's views, int64 [images, views]."""

    features: Features
    row_of: Array
    image_of: Array | None  # image number of each sample; None: the sample id
    errors: dict[int, str]  # image number -> reason why the image is bad
    batched = True

    def __post_init__(self) -> None:
        self.draws: bool = self.row_of.shape[1] > 1

    def numbers(self, ids: Array) -> Array:
        return ids if self.image_of is None else self.image_of[ids]

    def draw(self, number: int, generator: random.Random) -> int:
        return generator.randrange(self.row_of.shape[1]) if self.draws else 0

    def batch(self, numbers: Array, draws: Sequence[int] | None) -> Tensor:
        return self.features.take(self.row_of[numbers, 0 if draws is None else np.array(draws)])

    def one(self, number: int, generator: random.Random) -> tuple[Tensor, None]:
        return self.batch(np.array([number]), [self.draw(number, generator)])[0], None

    def sample(self, sample_id: int) -> Tensor:
        """Return the features of a sample's image, its first view. Raises BadSample."""
        number = self.numbers(np.array([sample_id]))
        if (reason := self.errors.get(int(number[0]))) is not None:
            raise BadSample(reason)
        return self.batch(number, None)[0]


@dataclass
class FeatureTexts:
    """Features of a list of texts, indexed like a tensor of tokens."""

    features: Features
    row_of: Array  # int64 [texts]

    def __getitem__(self, index: Tensor | int) -> Tensor:
        return self.take(np.array([index]))[0] if isinstance(index, int) else self.take(index.numpy())

    def take(self, numbers: Array) -> Tensor:
        """Return the features of some of the texts."""
        return self.features.take(self.row_of[numbers])


def image_features(config: DataConfig, source: PairSource, tower: Tower, device: torch.device = CPU) -> FeatureImages:
    """Return the features of all images of a source; embed those that are missing.

    Raises UserError: given vectors have another width than the tower's name says.
    """
    if isinstance(source, EmbeddingPairs):
        return FeatureImages(_given(source, "image", tower), np.arange(len(source))[:, None], None, {})
    image_of, views = source.image_of(), config.views or 1
    # the first sample of each image
    samples = np.arange(len(source)) if image_of is None else np.unique(image_of, return_index=True)[1]
    of_views = contents = _contents(source, samples)
    if config.views is not None:
        names = (f"{content},{view}" for content in contents.tolist() for view in range(views))
        of_views = np.array([content_of(name.encode()) for name in names], np.uint64)
    hashes, first, row_of = _distinct(of_views)
    evaluation, normalise = evaluation_transform(tower.inputs), Normalise(tower.inputs, CPU)
    augmentation = [config.crop_scale, config.flip, config.rand_augment, config.decode]
    variant = "" if config.views is None else f"view {augmentation}"
    train = TrainTransform(config, tower.inputs) if config.views else None

    def pixels(number: int) -> Tensor | None:
        """Preprocess a view: as in evaluation, or augmented at random, alike in every run with this image and view."""
        image, view = divmod(int(first[number]), views)
        try:
            data = source.image(int(samples[image]))
            if train is None:
                return evaluation(decode(data))
            return normalise(train(open_image(data), random.Random(f"{int(contents[image])},{view}")))
        except BadSample:
            return None

    def inputs(numbers: Sequence[int]) -> list[Tensor | None]:
        with ThreadPoolExecutor(max(loader_processes(config.workers), 1)) as pool:
            return list(pool.map(pixels, numbers))

    what = "images" if config.views is None else "views of images"
    items = Items(f"{len(hashes):,} {what}", hashes, inputs)
    features = open_features(tower, items, device, variant)
    row_of = row_of.reshape(-1, views)
    bad = np.flatnonzero((features.state[row_of] == UNUSABLE).any(axis=1)).tolist()
    errors = {number: _reason(source, int(samples[number])) for number in bad}
    return FeatureImages(features, row_of, image_of, errors)


def text_features(tower: Tower, tokenizer: Tokenizer, texts: list[str], device: torch.device = CPU) -> FeatureTexts:
    """Return the features of texts; embed those that are missing."""
    contents = np.array([content_of(text.encode()) for text in texts], np.uint64)
    # texts that are embedded together have similar lengths, so that the tower computes little padding
    hashes, first, row_of = _distinct(contents, np.array([len(text) for text in texts]))

    def tokens(numbers: Sequence[int]) -> Tensor:
        return tokenizer([texts[int(first[number])] for number in numbers])

    def lengths() -> Array:
        parts = [range(k, min(k + BLOCK, len(hashes))) for k in range(0, len(hashes), BLOCK)]
        return np.concatenate([text_lengths(tokens(part), tower.padding or 0).numpy() for part in parts])

    # a tower with a vector for each token gives texts different numbers of rows
    of_tokens = lengths if len(tower.shape) == 2 and tower.padding is not None else None
    items = Items(f"{len(hashes):,} texts", hashes, lambda numbers: list(tokens(numbers)), of_tokens)
    return FeatureTexts(open_features(tower, items, device), row_of)


def given_texts(source: EmbeddingPairs, tower: Tower) -> FeatureTexts:
    """Return the text vectors of a source. Raises UserError: the tower is named with another width."""
    return FeatureTexts(_given(source, "text", tower), np.arange(len(source)))


def _given(source: EmbeddingPairs, side: str, tower: Tower) -> Features:
    features = source.features[side]
    if features.shape != tower.shape:
        width = features.shape[0]
        raise UserError(
            f"{tower.name}, but the {side} vectors of data.root have width {width}; allowed: embeddings:{width}"
        )
    return features


def _contents(source: PairSource, samples: Array) -> Array:
    """Return the hash of each image file, uint64 [images]; kept in the cache while no file of the source changes.

    One process of this machine reads the files, the others wait for its hashes. If a file cannot be read, no hashes are
    kept, and the processes read one after the other.
    """
    stamp = source.stamp()
    if stamp is None:
        return _hashes(source, samples)[0]
    path = cache_home() / "frozen" / "contents" / f"{content_hash([source.fingerprint, stamp])}.npy"
    with lock(f"contents {path}"):
        if path.is_file():
            known: Array = np.load(path)
            return known
        contents, complete = _hashes(source, samples)
        if complete:
            with new_file(path) as temporary, temporary.open("wb") as file:
                np.save(file, contents)
    return contents


def _hashes(source: PairSource, samples: Array) -> tuple[Array, bool]:
    """Return a hash for each image file, and True if all could be read; else a later try may give other hashes."""
    unread = list[int]()

    def content(sample_id: int) -> int:
        try:
            return content_of(source.image(sample_id))
        except BadSample as error:
            if getattr(error.__cause__, "errno", None) in (errno.EACCES, errno.EIO):
                unread.append(sample_id)
            return content_of(f"{source.where(sample_id)}: {error}".encode())

    return np.array([content(sample_id) for sample_id in samples.tolist()], np.uint64), not unread


def _distinct(hashes: Array, lengths: Array | None = None) -> tuple[Array, Array, Array]:
    """Return the distinct hashes, where each occurs first, and for each input its place among the distinct ones.

    These are in the order of `lengths`, if given, then of their first occurrence.
    """
    _, first, number = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(first) if lengths is None else np.lexsort((first, lengths[first]))
    rank = np.argsort(order)  # the inverse permutation
    return hashes[first[order]], first[order], rank[number]


def _reason(source: PairSource, sample_id: int) -> str:
    """Return why the image of a sample is unusable."""
    try:
        decode(source.image(sample_id))
    except BadSample as error:
        return str(error)
    return "the image was unusable when its features were embedded"
