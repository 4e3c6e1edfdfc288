"""open_clip's tables in the package: their content, and the command that renews them."""

import csv
import gzip
from pathlib import Path

import pytest

from clipx.errors import UserError
from evaluation.reference import renew
from evaluation.reference.columns import BY_ROW, COLUMNS
from evaluation.reference.models import FACTS, FILE, models, source


def test_the_table_holds_what_open_clip_publishes() -> None:
    assert len(models()) == 121
    assert "mlfoundations/open_clip" in source() and "MIT" in source()
    one = models()["RN50/cc12m"]
    assert (one.values["ImageNet 1k"], one.values["MSCOCO image retr. R@1"]) == (0.3591, 0.2367)
    assert (one.image_flops, one.data) == (12.22, "cc12m")
    assert models()["ViT-B-32/datacomp_m_s128m_b4k"].values["ImageNet 1k"] == 0.2972
    assert all(0 <= value <= 1 for model in models().values() for value in model.values.values())


@pytest.mark.parametrize(
    ("name", "data", "samples"),
    [
        ("ViT-B-32/datacomp_s_s13m_b4k", "datacomp_s", 13e6),
        ("ViT-B-16/commonpool_l_clip_s1b_b8k", "commonpool_l_clip", 1e9),
        ("ViT-B-32/laion400m_e31", "laion400m", 31 * 407e6),
        ("RN50/openai", "openai", 12.8e9),
        ("ViT-B-32/laion2b_e16", "laion2b", None),
        ("ViT-H-14-quickgelu/dfn5b", "dfn5b", None),
    ],
)
def test_data_and_samples_come_from_the_tag(name: str, data: str, samples: float | None) -> None:
    assert (models()[name].data, models()[name].samples) == (data, samples)


def test_no_two_columns_share_a_result_row_and_all_columns_are_in_the_table() -> None:
    assert len(BY_ROW) == sum(len(column.names) for column in COLUMNS)
    assert {column.title for column in COLUMNS} <= set(models()["RN50/cc12m"].values)


def write_docs(folder: Path) -> Path:
    """Write open_clip's three files from the table of the package, and return the folder."""
    rows = list(csv.DictReader(gzip.decompress(FILE.read_bytes()).decode().splitlines()[1:]))
    retrieval = [title for title in rows[0] if "retr." in title or "jaccard" in title or title == "Average score"]
    results = [title for title in rows[0] if title not in (*retrieval, *FACTS[4:])]
    _write(folder / renew.RESULTS, [{title: row[title] for title in results} for row in rows])
    wanted = [*renew.KEY, *renew.SIZES, *retrieval]
    _write(folder / renew.RETRIEVAL, [{title: row[title] for title in wanted} for row in rows])
    towers = {row["name"]: {"model": row["name"]} | {title: row[title] for title in FACTS[4:]} for row in rows}
    _write(folder / renew.PROFILE, list(towers.values()))
    return folder


def _write(file: Path, rows: list[dict[str, str]]) -> None:
    with file.open("w") as lines:
        table = csv.DictWriter(lines, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def test_renewing_from_equal_tables_changes_only_the_commit(tmp_path: Path) -> None:
    renew.write(renew.join(write_docs(tmp_path)), "new (2027-01-01)", tmp_path / "table.csv.gz")
    old, new = (gzip.decompress(file.read_bytes()).decode().splitlines() for file in (FILE, tmp_path / "table.csv.gz"))
    assert old[0] != new[0] == "# mlfoundations/open_clip, docs/, commit new (2027-01-01), MIT"
    assert old[1:] == new[1:]
    first = (tmp_path / "table.csv.gz").read_bytes()
    renew.write(renew.join(tmp_path), "new (2027-01-01)", tmp_path / "table.csv.gz")
    assert (tmp_path / "table.csv.gz").read_bytes() == first


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (renew.RESULTS, "ImageNet 1k", "ImageNet", "no column ImageNet 1k: correct evaluation/reference/columns.py"),
        (renew.PROFILE, "RN50-quickgelu", "RN51", r"RN50-quickgelu/\w+ of openclip_results.csv is missing in"),
        (renew.RESULTS, "0.3591", "35.91", r"RN50/cc12m: ImageNet 1k 35.91 is not between 0 and 1"),
        (renew.RETRIEVAL, "", "", "openclip_retrieval_results.csv is missing: give open_clip's folder docs"),
    ],
)
def test_unexpected_tables_are_refused(tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    path = write_docs(tmp_path) / file
    path.write_text(path.read_text().replace(old, new)) if old else path.unlink()
    with pytest.raises(UserError, match=message):
        renew.join(tmp_path)
