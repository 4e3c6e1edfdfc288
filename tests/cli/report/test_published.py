"""Published results in the terminal and beside the results of a run."""

import csv
import socket
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from cli.report.command import report
from cli.settings.compose import compose_run
from tests.helpers import report_runs
from tests.helpers.published_rows import COCO, IMAGENET

NO_COUNTERPART = report_runs.row("zeroshot", "scenes_shape", "top1", 0.9, 0)


def write_run(root: Path, recipe: str, arm: str, changes: dict[str, Any] | None = None) -> Path:
    """Write a run with the recipe's config and invented results on ImageNet and COCO."""
    rows = [
        report_runs.row(one.task, one.dataset, one.metric, 0.4, 0, n=one.n, hashes=one.hashes, **(changes or {}))
        for one in (IMAGENET, COCO)
    ]
    folder = report_runs.write_run(root, recipe, results=[*rows, NO_COUNTERPART], with_artifacts=False)
    config = compose_run([f"recipe={recipe}", f"arm={arm}", "data.root=/none"])
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))
    return folder


@pytest.mark.parametrize(("recipe", "arm"), [("wpse_cc12m", "imq"), ("nuclr_cc12m", "nuclr")])
def test_rn50_cc12m_is_shown_beside_the_runs_on_cc12m_without_a_download(
    recipe: str, arm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "runs", recipe, arm)

    def no_network(*arguments: object, **settings: object) -> None:
        raise AssertionError(f"the report opens a connection: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    report([str(tmp_path / "runs"), f"out={tmp_path / 'out'}"])
    page, text = ((tmp_path / "out" / f"report.{suffix}").read_text() for suffix in ("html", "md"))
    for shown in ("0.3591", "RN50/cc12m, ours +0.0409", "0.2367", "RN50/cc12m, ours +0.163", "commit 89fb801"):
        assert shown in page and shown in text, shown
    with (tmp_path / "out" / "report.csv").open() as file:
        rows = {row["dataset"]: row for row in csv.DictReader(file)}
    assert (rows["imagenet"]["published_model"], rows["imagenet"]["published"]) == ("RN50/cc12m", "0.3591")
    assert float(rows["mscoco"]["published_difference"]) == pytest.approx(0.4 - 0.2367)
    assert rows["scenes_shape"]["published_model"] == ""


def test_named_models_have_a_column_each(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "wpse_cc12m", "imq")
    report([str(tmp_path / "runs"), f"out={tmp_path / 'out'}", "reference=[open_clip:RN50/yfcc15m, RN101/yfcc15m]"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "0.3238" in page and "0.3407" in page and "RN50/cc12m" not in page
    header = (tmp_path / "out" / "report.csv").read_text().split("\n")[0].split(",")
    assert {"published_model", "published", "published_model_1", "not_compared_1"} <= set(header)


def test_a_result_of_another_protocol_is_named_and_not_compared(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "nuclr_cc12m", "nuclr", {"split": "test, paper protocol"})
    report([str(tmp_path / "runs"), f"out={tmp_path / 'out'}"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "protocol=paper; published: exact recall" in page and "0.2367" not in page


def test_a_report_without_comparable_results_names_no_published_model(tmp_path: Path) -> None:
    report_runs.write_run(tmp_path / "runs")
    report([str(tmp_path / "runs"), f"out={tmp_path / 'out'}"])
    assert "published" not in (tmp_path / "out" / "report.csv").read_text()
    assert "Nearest published" not in (tmp_path / "out" / "report.html").read_text()


def test_in_a_table_of_many_methods_published_models_are_rows(tmp_path: Path) -> None:
    for number, recipe in enumerate(["wpse_cc12m", "nuclr_cc12m"] * 3):
        write_run(tmp_path / "runs" / str(number), recipe, "clip")
    report([str(tmp_path / "runs"), f"out={tmp_path / 'out'}"])
    text = (tmp_path / "out" / "report.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| RN50/cc12m<br>published |")]
    assert "0.3591" in line and "0.2367" in line


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("imagenet", ["ViT-H-14-378-quickgelu/dfn5b", "0.8437", "RN50/cc12m", "0.3591"]),
        ("clevr_count", ["CLEVR Counts", "0.2076"]),
        ("mscoco", ["ViT-SO400M-14-SigLIP-384/webli", "0.2367", "0.3412", "0.7154"]),
        ("RN50/cc12m", ["MSCOCO image retr. R@1", "0.2367", "18.2 GFLOPs", "384 million samples"]),
        ("RN50", ["RN50/openai", "RN50/yfcc15m", "RN50/cc12m", "0.3591"]),
    ],
)
def test_sets_and_models_are_listed(name: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    report(["published", name])
    printed = " ".join(capsys.readouterr().out.split())
    assert all(part in printed for part in parts) and "…" not in printed
