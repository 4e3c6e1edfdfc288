"""Images and texts of single items of an evaluation set, for the pages of `clipx report diff`."""

from dataclasses import dataclass

from clipx.errors import UserError
from evaluation.analyses.disagreement import Answers
from evaluation.datasets.kinds import AnyDataset, Captioned, Choices, Labelled, MinimalPairs
from evaluation.runner import open_sets, thumbnail
from evaluation.runs.results import LIMIT
from evaluation.types import Settings


@dataclass(frozen=True)
class Shown:
    """An item: its images as data URIs (two for a minimal pair), and its class name or captions."""

    images: tuple[str, ...]
    text: str


def show(answers: Answers, positions: list[int]) -> tuple[list[Shown], str]:
    """Return the items at these positions of `answers`, and the reason why they are empty, "" if they are not."""
    try:
        return _read(answers, positions), ""
    except UserError as error:
        return [Shown((), "")] * len(positions), f"no pictures: {error}"


def _read(answers: Answers, positions: list[int]) -> list[Shown]:
    limit = answers.hashes.get(LIMIT)
    (dataset,) = open_sets([answers.source], Settings(limit=int(limit) if limit else None))
    split = answers.split.partition(", ")[0]
    if split not in dataset.splits:
        raise UserError(f"{answers.source} no longer has the split {split}")
    if dataset.fingerprint(split, "images") != answers.hashes.get(f"images/{split}"):
        raise UserError(f"the images in {answers.source} have changed since the evaluation")
    return [_shown(dataset, split, int(answers.item[at]), int(answers.unit[at]), answers.metric) for at in positions]


def _shown(dataset: AnyDataset, split: str, item: int, image: int, metric: str) -> Shown:
    if isinstance(dataset, Labelled):
        texts, images = [dataset.classnames[int(dataset.labels(split)[item])]], [image]
    elif isinstance(dataset, Captioned):
        own = (dataset.image_of_caption(split) == image).nonzero()[:, 0].tolist()
        captions = dataset.texts(split, "captions")
        texts, images = [captions[i] for i in (own if "image_to_text" in metric else [item])], [image]
    elif isinstance(dataset, MinimalPairs):
        texts, images = dataset.texts(split, "captions")[2 * item : 2 * item + 2], [2 * item, 2 * item + 1]
    else:
        assert isinstance(dataset, Choices), f"{dataset.name} has no items"
        texts, images = [dataset.texts(split, "captions")[dataset.answers * item]], [item]
    pictures = dataset.images(split)
    return Shown(tuple(thumbnail(pictures[i]) for i in images), " / ".join(texts))
