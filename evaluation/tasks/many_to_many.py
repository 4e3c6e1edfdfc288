"""Retrieval on COCO with all right answers known: mAP@R, R-precision and corrected R@1 (ECCV Caption, CxC)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clipx.errors import UserError
from evaluation.datasets.kinds import ManyToMany
from evaluation.metrics import positive_ranks
from evaluation.tasks.rows import CaptionTask, row
from evaluation.types import Device, Features, Items, Score

METRICS = {"eccv": ("map@r", "r_precision", "recall@1"), "cxc": ("recall@1",)}  # as eccv-caption reports them


class ManyToManyRetrieval(CaptionTask):
    """The ordinary recall counts a fitting caption of another image as wrong; these metrics count it as right.

    R is the number of right answers to a query. Intervals are over images, as captions of one image are not
    independent.
    """

    name = "many_to_many"
    kind = "many_to_many"
    version = 1

    def score(self, dataset: ManyToMany, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows, for example `eccv_image_to_text_map@r`."""
        image, text = (features[request] for request in self.requests(dataset))
        split = dataset.splits[0]
        # direction -> queries, answers, image of each query
        sides = {
            "image_to_text": (image, text, torch.arange(len(image))),
            "text_to_image": (text, image, dataset.image_of_caption(split)),
        }
        rows, items = [], []
        for source, directions in dataset.positives(split).items():
            for direction, positives in directions.items():
                if not positives:  # limit= may leave no query
                    continue
                queries, answers, owner = sides[direction]
                ranks, asked = positive_ranks(queries, answers, positives), torch.tensor(list(positives))
                unit = owner[asked]
                captions = torch.bincount(unit).double()
                for metric, values, chance in _metrics(ranks, len(answers)):
                    name = f"{source}_{direction}_{metric}"
                    if metric in METRICS[source]:
                        share = torch.bincount(unit, values) / captions
                        weights, n = captions[captions > 0], len(ranks)
                        rows.append(row(self.name, dataset.short, split, name, share[captions > 0], weights, n, chance))
                    if metric == "recall@1":
                        items.append(Items(split, name, asked, values > 0, torch.stack([r[0] for r in ranks]), unit))
        if not rows:
            raise UserError(f"limit= leaves no query of {dataset.name}: use a larger one")
        return Score(rows, items=items)


def _metrics(ranks: list[Tensor], answers: int) -> Iterator[tuple[str, Tensor, float]]:
    """Yield metric, its value for each query and its expected value if the `answers` answers are in random order."""
    found = [one <= len(one) for one in ranks]  # right answers among the first R
    places = [torch.arange(1, len(one) + 1) for one in ranks]
    precisions = [(place / one * hit).sum() / len(one) for place, one, hit in zip(places, ranks, found, strict=True)]
    yield "map@r", torch.stack(precisions).double(), sum(_chance_map(p, answers) for p in places) / len(ranks)
    share = sum(len(one) for one in ranks) / len(ranks) / answers
    yield "r_precision", torch.stack([hit.double().mean() for hit in found]), share
    yield "recall@1", torch.stack([one[0] == 1 for one in ranks]).double(), share


def _chance_map(places: Tensor, answers: int) -> float:
    """Return the expected average precision at R of A = `answers` answers in random order; `places`: 1, ..., R.

    The answer at place r is right with probability R/A. Given that it is, each of the r - 1 answers before it is right
    with probability (R - 1)/(A - 1).
    """
    r, R = places.double(), len(places)
    return float(((1 + (r - 1) * (R - 1) / max(answers - 1, 1)) / r).sum()) / answers
