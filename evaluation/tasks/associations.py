"""Jaccard index of the images chosen for a cue with those that a person chose (WinoGAViL)."""

from math import comb

import torch

from evaluation.datasets.kinds import Associations
from evaluation.metrics import positive_ranks
from evaluation.tasks.rows import CaptionTask, by_category, row
from evaluation.types import Device, Features, Score


class CueAssociations(CaptionTask):
    """For a cue with k right images, the k nearest candidates are chosen; a tie counts against the model.

    Rows: `jaccard` over all cues, `jaccard/5-6` and `jaccard/10-12` by the number of candidates. DataComp (Gadre et
    al. 2023) reports the last.
    """

    name = "associations"
    kind = "associations"
    version = 1

    def score(self, dataset: Associations, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows."""
        images, cues = (features[request] for request in self.requests(dataset))
        values, chances, split = [], [], dataset.splits[0]
        for cue, candidates, right in zip(cues, dataset.candidates, dataset.right, strict=True):
            (ranks,) = positive_ranks(cue[None], images[candidates], {0: right})
            k = len(right)
            hits = int((ranks <= k).sum())
            values.append(hits / (2 * k - hits))
            chances.append(chance_jaccard(len(candidates), k))
        jaccard, chance = torch.tensor(values, dtype=torch.float64), torch.tensor(chances, dtype=torch.float64)
        sizes = ["5-6" if len(candidates) <= 6 else "10-12" for candidates in dataset.candidates]
        rows = [
            row(self.name, dataset.short, split, metric, jaccard[of], torch.ones(n), n, float(chance[of].mean()))
            for metric, of in by_category("jaccard", sizes).items()
            if (n := int(of.sum()))
        ]
        return Score(rows)


def chance_jaccard(candidates: int, k: int) -> float:
    """Return the expected Jaccard index of k random candidates with the k right ones."""
    ways = {hits: comb(k, hits) * comb(candidates - k, k - hits) for hits in range(k + 1)}
    return sum(hits / (2 * k - hits) * count for hits, count in ways.items()) / comb(candidates, k)
