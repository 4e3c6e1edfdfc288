"""Artifacts of evaluation tasks (artifacts/TASK-SET.json), from which the report draws figures and tables."""

import json
from pathlib import Path
from typing import Any

from clipx.errors import UserError

NUMBER = (int, float)
# kind of artifact -> what the report reads from it. A dict: these keys; {str: x}: any keys, each with x; [x]: a list of
# x; a type or several: a value of that type. Plug-ins may write other kinds.
ANSWERS = [{"similarity": NUMBER, "correct": object}]
SHAPES: dict[str, Any] = {
    "confusion": {"classnames": [object], "matrix": [[NUMBER]]},
    "confused": {"classnames": [object], "cells": [[NUMBER]]},
    "pairs": {"categories": {str: {"value": object, "low": object, "high": object}}},
    "linear_probe": {"C": [NUMBER], "validation_accuracy": [NUMBER]},
    "retrieval": {
        "text_to_image": [{"rank": NUMBER, "images": ANSWERS}],
        "image_to_text": [{"rank": NUMBER, "captions": ANSWERS}],
    },
    "geometry": {
        "margins": {"first": NUMBER, "last": NUMBER, "counts": [NUMBER]},
        "pca": {"image": [[NUMBER]], "text": [[NUMBER]]},
    },
    "weights": {"shown": [{"pixels": list, "patches": [[NUMBER]], "words": [[object]]}]},
    "popularity": {"captions": {str: [{"caption": object, "text": NUMBER, "image": NUMBER}]}, "curve": {}},
    "zeroshot_draws": {"top1": [NUMBER], "mean_per_class": [NUMBER]},
}
AGAIN = "delete it and evaluate again"


def read_artifacts(folder: Path) -> dict[str, dict[str, Any]]:
    """Return file name without suffix -> content of the artifacts in a folder. Raises UserError: one is corrupt."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        artifact = read_object(file, AGAIN)
        if problem := _problem(artifact, SHAPES.get(str(artifact.get("kind")), {})):
            raise UserError(f"{file} is corrupt ({problem}); {AGAIN}")
        found[file.stem] = artifact
    return found


def read_object(file: Path, advice: str) -> dict[str, Any]:
    """Return the content of a JSON file; {} if it does not exist. Raises UserError, with the advice: it is corrupt."""
    if not file.exists():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        first_line = str(error).strip().split("\n", 1)[0]
        raise UserError(f"{file} is corrupt ({first_line}); {advice}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file} is corrupt (no JSON object); {advice}")
    return content


def _problem(value: Any, shape: Any, name: str = "") -> str:
    """Return what the first part of `value` without the right shape lacks; "" if there is none."""
    inner: list[tuple[str, Any, Any]] = []
    if isinstance(shape, dict) and isinstance(value, dict):
        if missing := [key for key in shape if key is not str and key not in value]:
            return f"no {name}{missing[0]}"
        names = value if str in shape else shape
        inner = [(f"{name}{key}.", value[key], shape[str if str in shape else key]) for key in names]
    elif isinstance(shape, list) and isinstance(value, list):
        inner = [(name, element, shape[0]) for element in value]
    elif isinstance(shape, dict | list) or not isinstance(value, shape):
        return f"{name.rstrip('.')} is wrong"
    return next((problem for at, part, of_part in inner if (problem := _problem(part, of_part, at))), "")
