"""WinoGAViL (Bitton et al. 2022): a cue, 5 to 12 candidate images, and the images that a person associates with it."""

import csv
import io
import json
from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets.folder import require_file
from evaluation.datasets.images import FileImages
from evaluation.datasets.kinds import Associations, draw
from evaluation.types import Settings

COLUMNS = ("candidates", "cue", "associations")


def open_winogavil(spec: str, path: Path, settings: Settings) -> Associations:
    """Open winogavil_dataset.csv at `path`; images/NAME.png next to it are the candidates.

    The prompt is DataComp's: "A dog", "An eagle".

    Raises UserError: the table or a column is missing, a row is faulty, or an image is missing.
    """
    table = csv.DictReader(io.StringIO(require_file(spec, path, f"the columns {', '.join(COLUMNS)}"), newline=""))
    for column in COLUMNS:
        if column not in (table.fieldnames or ()):
            raise UserError(f"datasets={spec}: {path} has no column {column!r}")
    rows = [_row(spec, f"{path} row {number}", row) for number, row in enumerate(table, 2)]
    if not rows:
        raise UserError(f"datasets={spec}: {path} has no rows")
    rows = [rows[i] for i in draw(len(rows), settings.limit)]
    names = sorted({name for _, listed, _ in rows for name in listed})
    index = {name: i for i, name in enumerate(names)}
    images = FileImages(spec, path.parent, [path.parent / "images" / f"{name}.png" for name in names])
    cues = [f"{'An' if cue[0] in 'aeiou' else 'A'} {cue}" for cue, _, _ in rows]
    candidates = [[index[name] for name in listed] for _, listed, _ in rows]
    right = [[i for i, name in enumerate(listed) if name in chosen] for _, listed, chosen in rows]
    return Associations(spec, "winogavil", "test", images, cues, candidates, right)


def _row(spec: str, where: str, row: dict[str, str]) -> tuple[str, list[str], list[str]]:
    """Return cue, candidates and associations."""
    try:
        candidates, chosen = json.loads(row["candidates"]), json.loads(row["associations"])
        cue = row["cue"].strip().lower()
        if cue and set(chosen) & set(candidates):
            return cue, candidates, chosen
    except (TypeError, AttributeError, ValueError):
        pass
    raise UserError(f"datasets={spec}: {where} needs a cue, a list of candidates, and associations among them")
