"""MMVP-VLM (Tong et al. 2024): 9 visual patterns with 15 pairs each.

Layout: Questions.csv and MLLM_VLM Images/<Type>/<id>.jpg. prompts=ensemble writes "a photo of " before each
statement, as the benchmark's script scripts/evaluate_vlm.py does; prompts=simple takes the statement alone.
"""

import csv
import io
from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets import prompts
from evaluation.datasets.folder import require_file
from evaluation.datasets.images import FileImages
from evaluation.datasets.kinds import MinimalPairs
from evaluation.types import Settings

FILE, IMAGES = "Questions.csv", "MLLM_VLM Images"
COLUMNS = ("Question ID", "Type", "Statement")
TEMPLATES = prompts.Templates(ensemble=["a photo of {c}"], simple=["{c}"])  # {c}: the statement


def open_mmvp(spec: str, folder: Path, settings: Settings) -> MinimalPairs:
    """Open MMVP-VLM. An odd id and the next even id form a pair; rows may be in any order.

    Raises UserError: a column or an image is missing, an id has no partner, or the partner has another type.
    """
    rows = _rows(spec, folder / FILE)
    pairs = []
    for first in sorted(number for number in rows if number % 2):
        if first + 1 not in rows:
            raise UserError(f"datasets={spec}: {folder / FILE}: question {first} has no partner {first + 1}")
        if rows[first]["Type"] != rows[first + 1]["Type"]:
            raise UserError(f"datasets={spec}: {folder / FILE}: questions {first} and {first + 1} have different types")
        pairs.append(first)
    if 2 * len(pairs) != len(rows):
        second = next(number for number in sorted(rows) if number % 2 == 0 and number - 1 not in rows)
        raise UserError(f"datasets={spec}: {folder / FILE}: question {second} has no partner {second - 1}")
    numbers = [number for first in pairs for number in (first, first + 1)]
    paths = [folder / IMAGES / rows[number]["Type"] / f"{number}.jpg" for number in numbers]
    (template,) = prompts.select_templates(TEMPLATES, settings.prompts)
    captions = [template.replace("{c}", rows[number]["Statement"]) for number in numbers]
    types = [rows[first]["Type"] for first in pairs]
    images = FileImages(spec, folder, paths)
    return MinimalPairs(spec, "mmvp", "test", images, captions, types, settings.limit, settings.prompts)


def _rows(spec: str, path: Path) -> dict[int, dict[str, str]]:
    text = require_file(spec, path, f"the columns {', '.join(COLUMNS)}").removeprefix("\ufeff")
    table = csv.DictReader(io.StringIO(text, newline=""))
    missing = [column for column in COLUMNS if column not in (table.fieldnames or ())]
    if missing:
        raise UserError(f"datasets={spec}: {path} has no column {missing[0]!r}; expected {', '.join(COLUMNS)}")
    rows: dict[int, dict[str, str]] = {}
    for number, row in enumerate(table, 2):
        values = {column: (row[column] or "").strip() for column in COLUMNS}
        if not (values["Question ID"].isdecimal() and values["Type"] and values["Statement"]):
            raise UserError(f"datasets={spec}: {path} row {number} has no id, type or statement")
        if int(values["Question ID"]) in rows:
            raise UserError(f"datasets={spec}: {path} has question {values['Question ID']} twice")
        rows[int(values["Question ID"])] = values
    if not rows:
        raise UserError(f"datasets={spec}: {path} has no questions")
    return rows
