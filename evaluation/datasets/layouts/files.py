"""What the layouts of single files share."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from clipx.errors import UserError
from clipx.utils.files import content_hash
from evaluation.datasets.folder import require_file
from evaluation.datasets.images import FileImages
from evaluation.datasets.kinds import Split

SEED = 0  # of every split that we draw ourselves


def fingerprint(spec: str, root: Path, paths: Sequence[Path]) -> str:
    """Of each file's name below `root`, size and time of its last change: a replaced file may have the old size.

    Raises:
        UserError: a file is missing.
    """
    try:
        stats = [path.stat() for path in paths]
    except OSError as error:
        raise UserError(f"datasets={spec}: {error.filename} is missing") from None
    names = [path.relative_to(root).as_posix() for path in paths]
    return content_hash([(name, s.st_size, s.st_mtime_ns) for name, s in zip(names, stats, strict=True)])


def split_of_files(spec: str, root: Path, paths: Sequence[Path], labels: Sequence[int]) -> Split:
    """Images at these paths with these classes.

    Raises:
        UserError: a file is missing.
    """
    label = torch.tensor(labels, dtype=torch.int64)
    return Split(FileImages(spec, paths), label, fingerprint(spec, root, paths))


def read_json(spec: str, path: Path, content: str) -> dict[str, object]:
    """The object in a JSON file.

    Raises:
        UserError: it is missing or damaged, or holds no object.
    """
    text = require_file(spec, path, content)
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UserError(f"datasets={spec}: {path} is damaged; it should hold {content}")
    return value


def entries(
    spec: str, path: Path, facts: dict[str, object], key: str, fields: dict[str, type]
) -> list[dict[str, object]]:
    """The list `key` of a JSON object, each entry with the fields that are needed, of the right type.

    Raises:
        UserError: the list or a field is not there; names the file and the field.
    """
    found = facts.get(key)
    if not isinstance(found, list):
        raise UserError(f'datasets={spec}: {path} has no list "{key}"')
    for number, entry in enumerate(found):
        for name, kind in fields.items():
            if not isinstance(entry, dict) or not isinstance(entry.get(name), kind):
                raise UserError(f'datasets={spec}: {path}: "{key}" number {number} has no "{name}" ({kind.__name__})')
    return found
