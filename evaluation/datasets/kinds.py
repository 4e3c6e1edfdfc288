"""The kinds of evaluation sets; layout modules build them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from clipx.data.preprocess.captions import plain
from clipx.data.sources.embeddings import EmbeddingPairs
from clipx.errors import UserError, prefixed
from clipx.utils.files import content_hash
from clipx.utils.registry import lookup
from evaluation.datasets import prompts
from evaluation.datasets.files import Images, Placeholders, SomeImages
from evaluation.types import Kind, Settings, View, first_names

MANY_REPEATED = 0.1  # smallest share of repeated captions that the note names
LIMIT_SEED = 0  # seed of the choice of images or pairs under limit=


def draw(count: int, limit: int | None) -> list[int]:
    """Return `limit` indices in 0..count-1, drawn with a fixed seed, ascending; all indices if `limit` is None."""
    if limit is None or limit >= count:
        return list(range(count))
    return sorted(torch.randperm(count, generator=torch.Generator().manual_seed(LIMIT_SEED))[:limit].tolist())


@dataclass
class Split:
    """The images of one split, with one class each."""

    images: Images
    label: Tensor  # int64 [n]
    group: Tensor | None = None  # int64 [n], e.g. the region of each image


class Labelled:
    """Images with one class each, class names and prompt templates."""

    kind: Kind = "labelled"

    def __init__(
        self,
        spec: str,
        short: str,
        classnames: list[str],
        templates: prompts.Templates,
        readers: Mapping[str, Callable[[], Split]],
        settings: Settings,
        metric: str = "",
    ) -> None:
        """Keep what the set consists of; `readers` are called on first use.

        Args:
            spec: LAYOUT:PLACE.
            short: name in tables.
            readers: split -> function that opens it.
            metric: the set's own zero-shot metric, MACRO_F1 or a key of WORST_GROUP in tasks/zeroshot.py; "": none.

        Raises UserError: no class names, no prompt, or a prompt without {c}.
        """
        self.name, self.short, self.metric = spec, short, metric
        self.classnames = [plain(name) for name in classnames]
        self.templates = prompts.select_templates(templates, settings.prompts)
        prompts.check_prompts(spec, classnames, self.templates)
        self.prompts, self.protocol, self._limit = settings.prompts, settings.protocol, settings.limit
        self.splits, self._readers = tuple(readers), readers
        self._opened: dict[str, Split] = {}

    def labels(self, split: str) -> Tensor:
        """Return the class of each image, int64 [n], in 0..len(classnames)-1.

        Raises UserError: a label has no class name.
        """
        return self._split(split).label

    def groups(self, split: str) -> Tensor | None:
        """Return the group of each image, int64 [n]; None if the set has no groups."""
        return self._split(split).group

    def images(self, split: str) -> Sequence[Image]:
        """Return the images, which are decoded on access."""
        return self._split(split).images

    def texts(self, split: str, view: View) -> list[str]:
        """Return the prompts by class: all templates of class 0, then of class 1, ..."""
        assert view == "prompts", view
        return [template.replace("{c}", name) for name in self.classnames for template in self.templates]

    def fingerprint(self, split: str, view: View) -> str:
        """Return a hash of the images or of the prompts."""
        if view == "images":
            return self._split(split).images.fingerprint
        return content_hash(self.texts(split, view))

    def hashes(self, split: str, view: View) -> dict[str, str]:
        """Return hashes of what a score from this view depends on, besides the embeddings."""
        if view == "prompts":
            return {"templates": content_hash(self.templates)}
        labels, group = self.labels(split).tolist(), self.groups(split)
        hashes = {"classnames": content_hash(self.classnames), "labels": content_hash(labels)}
        return hashes if group is None else hashes | {"groups": content_hash(group.tolist())}

    def repeated_note(self) -> str:
        """Return a line that names the classes with the same name, or "". Zero-shot credits only the first of them."""
        repeated = [name for name, classes in Counter(self.classnames).items() if classes > 1]
        if not repeated:
            return ""
        names = first_names(repeated)
        return f"{self.short}: several classes have the same name ({names}): zero-shot credits the first"

    def _split(self, split: str) -> Split:
        if split not in self._opened:
            reader = lookup(self._readers, split, f"datasets={self.name} split")
            with prefixed(f"datasets={self.name}"):
                self._opened[split] = self._checked(split, reader())
        return self._opened[split]

    def _checked(self, split: str, opened: Split) -> Split:
        """Return the split under limit=. Raises UserError: it has no image, or a label without a class name."""
        if len(opened.label) == 0:
            raise UserError(f"its {split} split holds no images")
        low, high, names = int(opened.label.min()), int(opened.label.max()), len(self.classnames)
        if low < 0 or high >= names:
            raise UserError(f"{split} labels are {low}..{high}, but there are {names} class names")
        if self._limit is not None:
            chosen = draw(len(opened.label), self._limit)
            group = None if opened.group is None else opened.group[chosen]
            opened = Split(SomeImages(opened.images, chosen), opened.label[chosen], group)
        opened.images.dataset = self.name
        return opened


class _WithCaptions:
    """Images and captions of one split."""

    def __init__(
        self, spec: str, short: str, split: str, images: Images, captions: list[str], hashes: dict[str, str]
    ) -> None:
        self.name, self.short = spec, short
        self.splits: tuple[str, ...] = (split,)
        self._images, self._hashes = images, hashes
        self._captions = [plain(caption) for caption in captions]  # as in training
        images.dataset = spec

    def images(self, split: str) -> Images:
        """Return the images, which are decoded on access."""
        return self._images

    def texts(self, split: str, view: View) -> list[str]:
        """Return all captions, image by image."""
        assert view == "captions", view
        return self._captions

    def fingerprint(self, split: str, view: View) -> str:
        """Return a hash of the images or of the captions."""
        return self._images.fingerprint if view == "images" else self._hashes["captions"]

    def hashes(self, split: str, view: View) -> dict[str, str]:
        """Return hashes of what a score depends on, besides the embeddings."""
        return self._hashes


class Captioned(_WithCaptions):
    """Images with any number of captions each."""

    kind: Kind = "captioned"

    def __init__(
        self, spec: str, short: str, split: str, images: Images, captions: list[list[str]], settings: Settings
    ) -> None:
        """`captions`: the captions of each image.

        Raises UserError: no image has a caption, or a pool is larger than the set.
        """
        if settings.limit is not None:
            chosen = draw(len(images), settings.limit)
            images, captions = SomeImages(images, chosen), [captions[i] for i in chosen]
        if not any(captions):
            raise UserError('no sample has a caption; shards have .txt, or "captions" in .json')
        for pool in settings.pools:
            if pool > len(images):
                raise UserError(f"pools={pool} is too large for datasets={spec}: it has {len(images)} images")
        all_captions = [caption for of_image in captions for caption in of_image]
        super().__init__(spec, short, split, images, all_captions, {"captions": content_hash(captions)})
        self.protocol = settings.protocol
        self.pools = tuple(pool for pool in settings.pools if pool < len(images))  # a pool of all images is the set
        self._counts = torch.tensor([len(of_image) for of_image in captions])

    def image_of_caption(self, split: str) -> Tensor:
        """Return the image index of each caption, int64 [captions]."""
        return torch.arange(len(self._counts)).repeat_interleave(self._counts)

    def captions_of_images(self) -> list[list[str]]:
        """Return the captions of each image."""
        captions = iter(self.texts(self.splits[0], "captions"))
        return [[*islice(captions, count)] for count in self._counts.tolist()]

    def repeated_note(self) -> str:
        """Return a line if many captions are also those of other images, where they count as wrong; else ""."""
        captions, images = self.texts(self.splits[0], "captions"), self.image_of_caption(self.splits[0]).tolist()
        pairs = Counter(caption for caption, _ in {*zip(captions, images, strict=True)})  # -> number of images
        share = sum(pairs[caption] > 1 for caption in captions) / len(captions)
        if share < MANY_REPEATED:
            return ""
        return (
            f"{self.short}: {share:.0%} of the captions are also captions of other images, where they count as wrong: "
            "all recalls are lower for it"
        )


class Embedded(Captioned):
    """Some pairs of vectors made elsewhere; an image is a placeholder, a caption that of the metadata or `row 7`."""

    def __init__(
        self, spec: str, short: str, split: str, source: EmbeddingPairs, ids: NDArray[np.int64], settings: Settings
    ) -> None:
        """`ids`: the rows of the source."""
        self.source, self.ids = source, ids[draw(len(ids), settings.limit)]
        images = Placeholders(len(self.ids), content_hash([source.fingerprint, self.ids.tolist()]))
        captions = [source.captions(int(i)) for i in self.ids]
        super().__init__(spec, short, split, images, captions, replace(settings, limit=None))

    def vectors(self, view: View, numbers: NDArray[np.int64]) -> Tensor:
        """Return float32 [b, width] of some images or texts."""
        return self.source.features["image" if view == "images" else "text"].take(self.ids[numbers])

    def fingerprint(self, split: str, view: View) -> str:
        """Return a hash of the vectors: without metadata, captions do not tell two sets apart."""
        return f"{self._images.fingerprint} {view}"


class Associations(_WithCaptions):
    """Cues and images: each cue has several candidate images, and some of them are right (WinoGAViL)."""

    kind: Kind = "associations"
    candidates: list[list[int]]  # for each cue, indices of its images
    right: list[list[int]]  # positions of the right ones among these


class _Categorised(_WithCaptions):
    """Items with one category each; all have the same number of images, and the same number of captions.

    A function that opens a set may change the attributes of the object that it returns.
    """

    def __init__(
        self,
        spec: str,
        short: str,
        split: str,
        images: Images,
        captions: list[str],
        categories: list[str],
        limit: int | None,
    ) -> None:
        """Item i has the category `categories[i]`, and the i-th of len(categories) equal parts of images and captions.

        `limit`: number of items to draw; None: all.
        """
        items = len(categories)
        each_images, self.answers = len(images) // items, len(captions) // items
        assert (len(images), len(captions)) == (items * each_images, items * self.answers)
        if limit is not None:
            chosen = draw(items, limit)
            images = SomeImages(images, _members(chosen, each_images))
            captions = [captions[i] for i in _members(chosen, self.answers)]
            categories = [categories[i] for i in chosen]
        hashes = {"captions": content_hash(captions), "categories": content_hash(categories)}
        super().__init__(spec, short, split, images, captions, hashes)
        self._categories = categories

    def categories(self, split: str) -> list[str]:
        """Return the category of each item."""
        return self._categories


def _members(items: list[int], each: int) -> list[int]:
    return [each * item + k for item in items for k in range(each)]


class MinimalPairs(_Categorised):
    """Minimal pairs: two images and two captions each, which differ little; the kind of difference is the category.

    Images and captions 2p and 2p+1 form pair p.
    """

    kind: Kind = "pairs"
    prompts = prompts.ENSEMBLE  # value of Settings.prompts, for sets whose captions contain a prompt
    both_ways = False  # also score the choice of the caption for each image, and both choices together


class Choices(_Categorised):
    """Images with `answers` captions each; the first `right` of them are right, the others wrong (SugarCrepe, ARO)."""

    kind: Kind = "choices"
    right = 1  # number of right captions; two are also scored without the image
    by_category = True  # report the accuracy of every category
    averaged: frozenset[str] = frozenset()  # categories whose mean accuracy is reported, if there are any
    # metric, number of consecutive images that must all be right; limit must be None
    groups: tuple[tuple[str, int], ...] = ()


AnyDataset = Labelled | Captioned | MinimalPairs | Choices | Associations
