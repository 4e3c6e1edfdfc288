"""Class names and prompt templates, with {c} in the place of the class name.

They come from the packages that the field uses (clip-benchmark's tables; open_clip's for ImageNet) and are
recorded by hash in every row, because a score without its prompts cannot be compared.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from clipx.errors import UserError

ENSEMBLE, SIMPLE = "ensemble", "simple"
PLAIN = "a photo of a {c}."  # the one prompt of `prompts=simple` for a set that has none of its own


@dataclass(frozen=True)
class Templates:
    """The prompts of a data set: all of them, and the few that stand for `prompts=simple`."""

    ensemble: list[str]
    simple: list[str]


def of(key: str) -> Templates:
    """The templates of clip-benchmark's table; of ImageNet, open_clip's 80, and the 7 that SLIP and paper 5 use."""
    if key == "imagenet1k":
        from open_clip import zero_shot_metadata as metadata

        return Templates(
            _filled(metadata.OPENAI_IMAGENET_TEMPLATES),
            _filled(metadata.SIMPLE_IMAGENET_TEMPLATES),
        )
    # "a photo of {c} objects." is the counting prompt that others use beside clip-benchmark's (paper 2)
    simple = "a photo of {c} objects." if key == "clevr_count_all" else PLAIN
    return Templates(_table("en_zeroshot_classification_templates.json")[key], [simple])


def classnames(key: str) -> list[str]:
    """In the labels' order."""
    if key == "imagenet1k":
        from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

        return list(IMAGENET_CLASSNAMES)
    return _table("en_classnames.json")[key]


def check_choice(choice: str) -> None:
    """Raises UserError unless it is `ensemble`, `simple`, or a template of the user's own."""
    if "{c}" not in choice and choice not in (ENSEMBLE, SIMPLE):
        own = "a prompt of your own with {c} for the class name"
        raise UserError(f"prompts={choice} is not known; allowed: {ENSEMBLE}, {SIMPLE}, or {own}")


def choose(templates: Templates, choice: str) -> list[str]:
    """The templates of a choice that `check_choice` passes.

    Raises:
        UserError: it is none.
    """
    check_choice(choice)
    if "{c}" in choice:
        return [choice]
    return templates.ensemble if choice == ENSEMBLE else templates.simple


def check(spec: str, classnames: list[str], templates: list[str]) -> None:
    """Raises UserError when there is no class name or no prompt, or when a prompt has no place for the name."""
    for what, lines in (("class name", classnames), ("prompt template", templates)):
        if not lines:
            raise UserError(f"datasets={spec}: it has no {what}")
    for template in templates:
        if "{c}" not in template:
            raise UserError(f"datasets={spec}: prompt {template!r} lacks {{c}}, the class name's place")


def _filled(templates: tuple[Callable[[str], str], ...]) -> list[str]:
    return [template("{c}") for template in templates]


@cache
def _table(name: str) -> dict[str, list[str]]:
    table: dict[str, list[str]] = json.loads((files("clip_benchmark") / "datasets" / name).read_text(encoding="utf-8"))
    return table
