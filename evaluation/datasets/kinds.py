"""The kinds of evaluation sets; layout modules build them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from PIL.Image import Image
from torch import Tensor

from clipx.errors import UserError
from clipx.utils.files import content_hash
from clipx.utils.registry import lookup
from evaluation.datasets import prompts
from evaluation.datasets.images import Images, SomeImages
from evaluation.types import Kind, Settings, View

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
    ) -> None:
        """`spec`: KIND:PLACE; `short`: name in tables; `readers`: split -> function that opens it, called on first use.

        Raises UserError: no class names, no prompt, or a prompt without {c}.
        """
        self.name = spec
        self.short = short
        self.classnames = classnames
        self.templates = prompts.select_templates(templates, settings.prompts)
        prompts.check_prompts(spec, classnames, self.templates)
        self.prompts = settings.prompts
        self._limit = settings.limit
        self.splits = tuple(readers)
        self._readers = readers
        self._opened: dict[str, Split] = {}

    def labels(self, split: str) -> Tensor:
        """Return the class of each image, int64 [n], in 0..len(classnames)-1.

        Raises UserError: a label has no class name.
        """
        return self._split(split).label

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
        return {"classnames": content_hash(self.classnames), "labels": content_hash(self.labels(split).tolist())}

    def _split(self, split: str) -> Split:
        if split not in self._opened:
            opened = lookup(self._readers, split, f"datasets={self.name} split")()
            if len(opened.label) == 0:
                raise UserError(f"datasets={self.name}: its {split} split holds no images")
            low, high, names = int(opened.label.min()), int(opened.label.max()), len(self.classnames)
            if low < 0 or high >= names:
                found = f"{split} labels are {low}..{high}"
                raise UserError(f"datasets={self.name}: {found}, but there are {names} class names")
            if self._limit is not None:
                chosen = draw(len(opened.label), self._limit)
                opened = Split(SomeImages(opened.images, chosen), opened.label[chosen])
            self._opened[split] = opened
        return self._opened[split]


class _WithCaptions:
    """Images and captions of one split."""

    def __init__(
        self, spec: str, short: str, split: str, images: Images, captions: list[str], hashes: dict[str, str]
    ) -> None:
        self.name = spec
        self.short = short
        self.splits: tuple[str, ...] = (split,)
        self._images = images
        self._captions = captions
        self._hashes = hashes

    def images(self, split: str) -> Sequence[Image]:
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
        if not any(captions):
            raise UserError(f'datasets={spec}: no sample has a caption, neither .json with "captions" nor .txt')
        if settings.limit is not None:
            chosen = draw(len(images), settings.limit)
            images, captions = SomeImages(images, chosen), [captions[i] for i in chosen]
        for pool in settings.pools:
            if pool > len(images):
                raise UserError(f"pools={pool} is too large for datasets={spec}: it has {len(images)} images")
        all_captions = [caption for of_image in captions for caption in of_image]
        super().__init__(spec, short, split, images, all_captions, {"captions": content_hash(captions)})
        self.protocol = settings.protocol
        self.pools = tuple(pool for pool in settings.pools if pool < len(images))  # else equal to the whole set
        self._counts = torch.tensor([len(of_image) for of_image in captions])

    def image_of_caption(self, split: str) -> Tensor:
        """Return the image index of each caption, int64 [captions]."""
        return torch.arange(len(self._counts)).repeat_interleave(self._counts)


class MinimalPairs(_WithCaptions):
    """Minimal pairs: two images and two captions each, which differ in one visual detail; its kind is the category."""

    kind: Kind = "pairs"

    def __init__(
        self,
        spec: str,
        short: str,
        split: str,
        images: Images,
        captions: list[str],
        categories: list[str],
        limit: int | None,
        chosen_prompts: str = prompts.ENSEMBLE,
        both_ways: bool = False,
    ) -> None:
        """Images and captions 2p and 2p+1 form pair p, of category `categories[p]`.

        Args:
            limit: number of pairs to draw; None: all.
            chosen_prompts: value of Settings.prompts, for sets whose captions contain a prompt.
            both_ways: score also the choice of captions by image, and both choices together (Winoground).
        """
        assert len(images) == len(captions) == 2 * len(categories)
        if limit is not None:
            pairs = draw(len(categories), limit)
            members = [i for pair in pairs for i in (2 * pair, 2 * pair + 1)]
            images, captions = SomeImages(images, members), [captions[i] for i in members]
            categories = [categories[pair] for pair in pairs]
        hashes = {"captions": content_hash(captions), "categories": content_hash(categories)}
        super().__init__(spec, short, split, images, captions, hashes)
        self.prompts = chosen_prompts
        self.both_ways = both_ways
        self._categories = categories

    def categories(self, split: str) -> list[str]:
        """Return the category of each pair."""
        return self._categories


class Choices(_WithCaptions):
    """Images with the same number of captions each; the first caption is right, the others are wrong (SugarCrepe)."""

    kind: Kind = "choices"

    def __init__(
        self,
        spec: str,
        short: str,
        split: str,
        images: Images,
        captions: list[list[str]],
        categories: list[str],
        limit: int | None,
    ) -> None:
        """`captions[i]` and `categories[i]` belong to image i; `limit`: number of images to draw; None: all."""
        assert len(images) == len(captions) == len(categories) and len({len(answers) for answers in captions}) == 1
        if limit is not None:
            chosen = draw(len(categories), limit)
            images, captions = SomeImages(images, chosen), [captions[i] for i in chosen]
            categories = [categories[i] for i in chosen]
        hashes = {"captions": content_hash(captions), "categories": content_hash(categories)}
        super().__init__(spec, short, split, images, [text for answers in captions for text in answers], hashes)
        self.answers = len(captions[0])
        self._categories = categories

    def categories(self, split: str) -> list[str]:
        """Return the category of each image."""
        return self._categories


AnyDataset = Labelled | Captioned | MinimalPairs | Choices
