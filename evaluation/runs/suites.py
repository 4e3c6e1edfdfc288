"""Suites of evaluation sets (`suite=NAME` of clipx eval) and the mean over a suite."""

from pathlib import Path
from statistics import fmean

from clipx.errors import UserError
from clipx.utils.registry import lookup
from evaluation.datasets.named import present
from evaluation.runs.results import LIMIT
from evaluation.types import HEADLINE, Result

NAMES = {  # suite -> its sets
    "datacomp38": (  # Gadre et al. 2023, DataComp's evaluation
        "imagenet imagenetv2 imagenet_sketch imagenet_a imagenet_o imagenet_r objectnet caltech101 cifar10 cifar100 "
        "clevr_count clevr_distance country211 dtd eurosat aircraft food101 gtsrb kitti_distance mnist flowers102 pets "
        "voc2007 pcam rendered_sst2 resisc45 cars stl10 sun397 svhn flickr30k mscoco winogavil iwildcam camelyon17 "
        "fmow dollar_street geode"
    ),
    "vtab": (  # Zhai et al. 2019
        "caltech101 cifar100 dtd flowers102 pets svhn sun397 pcam eurosat resisc45 retinopathy clevr_count "
        "clevr_distance dmlab kitti_distance dsprites_location dsprites_orientation smallnorb_azimuth "
        "smallnorb_elevation"
    ),
    "clip13": (  # paper 5, table 1
        "imagenet cifar10 cifar100 stl10 food101 caltech101 cars aircraft flowers102 eurosat dtd pets sun397"
    ),
    "composition": "sugar_crepe winoground mmvp aro_attribution aro_relation aro_coco_order aro_flickr_order",
}
SUITES = {suite: tuple(names.split()) for suite, names in NAMES.items()}
# set -> the metric that DataComp's evaluation or the set's authors report, if it differs from the task's in HEADLINE
METRIC = dict.fromkeys(("caltech101", "aircraft", "flowers102", "pets"), "mean_per_class") | {
    "iwildcam": "macro_f1",
    "fmow": "worst_group_top1",
    "dollar_street": "worst_group_top5",
    "geode": "worst_group_top1",
    "winogavil": "jaccard/10-12",
    "winoground": "group_score",
    "aro_relation": "mean_per_category",
    "aro_attribution": "mean_per_category",
}
# a set's score: the mean headline metric of the first of these tasks that has rows
TASKS = ("zeroshot", "retrieval", "choices", "pairs", "associations")


def sets_of(suite: str, root: Path) -> list[str]:
    """Return the sets of a suite that exist below root, in the suite's order.

    Raises UserError: an unknown suite, or none of its sets exists.
    """
    names = lookup(SUITES, suite, "suite")
    found = [name for name in names if present(name, root)]
    if not found:
        raise UserError(
            f"suite={suite}: none of its sets is in sets={root} ({', '.join(names)}); clipx ls data describes them"
        )
    return found


def mean_line(suite: str, rows: list[Result]) -> str:
    """Return the mean over the suite in per cent, or, if a set is missing, `suite vtab: 7 of 19 sets, so no mean`."""
    names = SUITES[suite]
    values = {name: value for name in names if (value := _main_value(name, rows)) is not None}
    if len(values) == len(names):
        limits = sorted({f" with limit={row.hashes[LIMIT]}" for row in rows if LIMIT in row.hashes})
        return f"suite {suite}: mean of {len(names)} sets {100 * fmean(values.values()):.1f}%{'; '.join(limits)}"
    missing = [name for name in names if name not in values]
    return f"suite {suite}: {len(values)} of {len(names)} sets, so no mean; missing: {', '.join(missing)}"


def _main_value(name: str, rows: list[Result]) -> float | None:
    """Return the set's score from the rows on all its images; None if there are none. Rows of pools do not count."""
    for task in TASKS:
        found = {
            row.metric: row.value
            for row in rows
            if (row.task, row.dataset) == (task, name) and "pool" not in row.hashes
        }
        wanted = (METRIC[name],) if name in METRIC else HEADLINE[task]
        if all(metric in found for metric in wanted):
            return fmean(found[metric] for metric in wanted)
    return None
