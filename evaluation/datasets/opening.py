"""Open an evaluation set from its specification, `NAME:ROOT` or `KIND:PLACE`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from clipx.errors import UserError
from clipx.utils.registry import lookup, suggest
from evaluation.datasets import prompts
from evaluation.datasets.kinds import AnyDataset
from evaluation.datasets.layouts.clevr import open_clevr
from evaluation.datasets.layouts.coco import open_coco
from evaluation.datasets.layouts.karpathy import open_karpathy
from evaluation.datasets.layouts.shards import open_captions, open_hub, open_pairs, open_wds
from evaluation.datasets.named import NAMED
from evaluation.types import DEFAULTS, Settings

LAYOUTS: dict[str, Callable[[str, Path, Settings], AnyDataset]] = {
    "wds": open_wds,
    "hf": open_hub,
    "captions": open_captions,
    "pairs": open_pairs,
    "karpathy": open_karpathy,
    "coco": open_coco,
    "clevr": open_clevr,
}
PROTOCOLS = {
    "corrected": "counts hits exactly",
    "paper": "scores one caption per image and counts the others as hits, as paper 1",
}
KINDS = LAYOUTS | {name: partial(entry.open, name) for name, entry in NAMED.items()}


def open_dataset(spec: str, settings: Settings = DEFAULTS) -> AnyDataset:
    """Open `KIND:PLACE`. For a named set, PLACE is the folder that holds all named sets.

    Raises UserError: unknown kind, place, protocol or prompts; or a missing file, split, caption or class name.
    """
    lookup(PROTOCOLS, settings.protocol, "protocol")
    prompts.check_choice(settings.prompts)
    kind, colon, place = spec.partition(":")
    if not (colon and place):
        raise UserError(f"datasets={spec}: expected a known name or kind:FOLDER; {suggest(kind, KINDS)}")
    return lookup(KINDS, kind, "datasets kind")(spec, Path(place).expanduser(), settings)


def locate(spec: str, root: str) -> str:
    """Return `NAME:root` for a named set, any other specification unchanged."""
    return f"{spec}:{root}" if spec in NAMED else spec
