"""Helpers for layouts of single image files and JSON annotations."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from clipx.errors import UserError
from evaluation.datasets.folder import require_file
from evaluation.datasets.images import FileImages
from evaluation.datasets.kinds import Split

SEED = 0  # of the splits that we draw for sets without official ones


def split_of_files(spec: str, root: Path, paths: Sequence[Path], labels: Sequence[int]) -> Split:
    """Return a split of image files with these labels. Raises UserError: a file is missing."""
    return Split(FileImages(spec, root, paths), torch.tensor(labels, dtype=torch.int64))


def read_json(spec: str, path: Path, content: str, kind: type = dict) -> Any:
    """Return the object in a JSON file, or the list if `kind` is list; `content` describes the file in messages.

    Raises UserError: the file is missing or corrupt, or holds a value of another type or an empty list.
    """
    text = require_file(spec, path, content)
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind) or value == []:
        raise UserError(f"datasets={spec}: {path} is corrupt; it should hold {content}")
    return value


def entries(
    spec: str, path: Path, value: dict[str, object], key: str, fields: dict[str, type]
) -> list[dict[str, object]]:
    """Return the list `key` of the JSON object `value`; each entry must have `fields` (name -> type).

    Raises UserError: the list or a field is missing or of the wrong type; the message names the file and the field.
    """
    found = value.get(key)
    if not isinstance(found, list):
        raise UserError(f'datasets={spec}: {path} has no list "{key}"')
    for number, entry in enumerate(found):
        for name, kind in fields.items():
            if not isinstance(entry, dict) or not isinstance(entry.get(name), kind):
                raise UserError(f'datasets={spec}: {path}: "{key}" number {number} has no "{name}" ({kind.__name__})')
    return found


def text_fields(spec: str, where: str, entry: object, names: tuple[str, ...]) -> list[str]:
    """Return the texts of an entry's fields `names`. Raises UserError: a field is missing, empty or not a text."""
    values = [entry.get(name) if isinstance(entry, dict) else None for name in names]
    for name, value in zip(names, values, strict=True):
        if not (isinstance(value, str) and value.strip()):
            raise UserError(f'datasets={spec}: {where} has no "{name}"')
    return [str(value) for value in values]
