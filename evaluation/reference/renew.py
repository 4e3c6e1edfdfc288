"""Write open_clip.csv.gz from a copy of open_clip: python -m evaluation.reference.renew OPEN_CLIP/docs COMMIT."""

import csv
import gzip
import io
import sys
from pathlib import Path

from clipx.errors import UserError
from clipx.utils.files import write_bytes
from evaluation.reference.columns import COLUMNS
from evaluation.reference.models import FACTS, FILE

RESULTS, RETRIEVAL, PROFILE = "openclip_results.csv", "openclip_retrieval_results.csv", "model_profile.csv"
KEY = ("name", "pretrained")
SIZES = ("params (M)", "FLOPs (B)")


def join(docs: Path) -> list[dict[str, str]]:
    """Return one row per model: FACTS, then every result of both tables.

    Raises UserError: a file, a model or a column is missing, or a result is not between 0 and 1.
    """
    results, retrieval, profile = (_read(docs / name) for name in (RESULTS, RETRIEVAL, PROFILE))
    retrieval_rows = {tuple(row[key] for key in KEY): row for row in retrieval}
    towers = {row["model"]: row for row in profile}
    joined = []
    for row in results:
        name = tuple(row[key] for key in KEY)
        if name not in retrieval_rows or row["name"] not in towers:
            raise UserError(f"{docs}: {'/'.join(name)} of {RESULTS} is missing in {RETRIEVAL} or {PROFILE}")
        values = {title: value for title, value in (row | retrieval_rows[name]).items() if title not in (*KEY, *SIZES)}
        if missing := [column.title for column in COLUMNS if column.title not in values]:
            raise UserError(f"{docs}: no column {', '.join(missing)}: correct evaluation/reference/columns.py")
        if wrong := [f"{title} {value}" for title, value in values.items() if not 0 <= float(value) <= 1]:
            raise UserError(f"{docs}: {'/'.join(name)}: {', '.join(wrong)} is not between 0 and 1")
        joined.append({**{key: (row | towers[row["name"]])[key] for key in FACTS}, **values})
    return joined


def write(rows: list[dict[str, str]], commit: str, file: Path = FILE) -> None:
    """Write the table. Equal rows and commit give an equal file."""
    text = io.StringIO()
    text.write(f"# mlfoundations/open_clip, docs/, commit {commit}, MIT\n")
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_bytes(file, gzip.compress(text.getvalue().encode(), mtime=0))


def _read(file: Path) -> list[dict[str, str]]:
    if not file.is_file():
        raise UserError(f"{file} is missing: give open_clip's folder docs")
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


if __name__ == "__main__":
    found = join(Path(sys.argv[1]))
    write(found, sys.argv[2])
    print(f"{FILE}: {len(found)} models, {len(found[0]) - len(FACTS)} results each, {FILE.stat().st_size:,} bytes")
