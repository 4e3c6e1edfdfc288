"""Class names and prompt templates; {c} stands for the class name.

ImageNet's come from open_clip, all others from clip-benchmark's tables. Result rows record hashes of them, because
scores with different prompts cannot be compared.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from clipx.errors import UserError

ENSEMBLE, SIMPLE = "ensemble", "simple"
PLAIN = "a photo of a {c}."  # prompts=simple, unless the data set has its own simple prompt


@dataclass(frozen=True)
class Templates:
    """The prompts of a data set for `prompts=ensemble` and `prompts=simple`."""

    ensemble: list[str]
    simple: list[str]


def templates_of(key: str) -> Templates:
    """Return the templates of a key of clip-benchmark's tables.

    ImageNet has open_clip's 80 (ensemble), and the 7 that SLIP and paper 5 use (simple).
    """
    if key == "imagenet1k":
        from open_clip import zero_shot_metadata as metadata

        both = (metadata.OPENAI_IMAGENET_TEMPLATES, metadata.SIMPLE_IMAGENET_TEMPLATES)
        return Templates(*([template("{c}") for template in templates] for templates in both))
    # the usual alternative to clip-benchmark's "a picture of {c} objects"
    simple = "a photo of {c} objects." if key == "clevr_count_all" else PLAIN
    return Templates(published_templates(key), [simple])


def published_templates(key: str) -> list[str]:
    """Return clip-benchmark's templates. For ImageNet, they equal open_clip's 80, but need no import of open_clip."""
    return _table("en_zeroshot_classification_templates.json")[key]


def classnames(key: str) -> list[str]:
    """Return the class names in the order of the labels."""
    if key == "imagenet1k":
        from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

        return list(IMAGENET_CLASSNAMES)
    return _table("en_classnames.json")[key]


def check_choice(choice: str) -> None:
    """Raise UserError unless `choice` is `ensemble`, `simple` or a template with {c}."""
    if "{c}" not in choice and choice not in (ENSEMBLE, SIMPLE):
        own = "your own prompt with {c} for the class name"
        raise UserError(f"prompts={choice} is not known; allowed: {ENSEMBLE}, {SIMPLE}, or {own}")


def select_templates(templates: Templates, choice: str) -> list[str]:
    """Return the templates for a value of Settings.prompts that `check_choice` accepts."""
    if "{c}" in choice:
        return [choice]
    return templates.ensemble if choice == ENSEMBLE else templates.simple


def check_prompts(spec: str, classnames: list[str], templates: list[str]) -> None:
    """Raise UserError if there is no class name or no prompt, or if a prompt lacks {c}."""
    for what, lines in (("class name", classnames), ("prompt template", templates)):
        if not lines:
            raise UserError(f"datasets={spec}: the set has no {what}")
    for template in templates:
        if "{c}" not in template:
            raise UserError(f"datasets={spec}: prompt {template!r} lacks {{c}} for the class name")


@cache
def _table(name: str) -> dict[str, list[str]]:
    table: dict[str, list[str]] = json.loads((files("clip_benchmark") / "datasets" / name).read_text(encoding="utf-8"))
    return table
