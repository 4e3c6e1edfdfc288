"""Comparison with published numbers: tolerance, matching of data sets, missing weights and data."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cli import validate as command
from cli.validate import COPIES, MODELS, Numbers, compare_all, published_numbers
from evaluation.datasets.named import NAMED
from evaluation.datasets.opening import open_dataset
from evaluation.types import Result
from tests.helpers import fakes, replicas

Calls = list[tuple[str, str, list[str]]]


def result(dataset: str, metric: str, value: float) -> Result:
    return Result("zeroshot", dataset, "test", metric, value, 8, value - 0.1, value + 0.1, None, True, 0, "m")


def run(published: Mapping[str, Numbers], root: Path, rows: list[Result]) -> tuple[list[str], Calls]:
    calls: Calls = []

    def evaluate(model: str, task: str, specs: list[str]) -> list[Result]:
        calls.append((model, task, specs))
        return rows

    def fetch(model: str) -> str:
        return "`hf download absent`" if model == "absent" else ""

    return [number.verdict for number in compare_all(published, root, fetch, evaluate)], calls


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [(0.4436, "agrees"), (0.4466, "agrees"), (0.4406, "agrees"), (0.447, "differs"), (0.44, "differs")],
)
def test_the_tolerance_is_three_tenths_of_a_point(tmp_path: Path, measured: float, verdict: str) -> None:
    replicas.dtd(tmp_path)
    rows = [result("dtd", "top1", measured), result("dtd", "mean_per_class", 0.4436)]
    assert run({"m": {("dtd", "top1"): 0.4436}}, tmp_path, rows)[0] == [verdict]


def test_the_benchmarks_copy_is_preferred_and_our_own_split_is_compared_by_its_interval(tmp_path: Path) -> None:
    replicas.eurosat(tmp_path)
    published = {"m": {("eurosat", "top1"): 0.50}}
    verdicts, calls = run(published, tmp_path, [result("eurosat", "top1", 0.58)])
    assert (verdicts, calls) == (["agrees"], [("m", "zeroshot", [f"eurosat:{tmp_path}"])])
    fakes.labelled(tmp_path / "wds_vtab-eurosat")
    verdicts, calls = run(published, tmp_path, [result("wds_vtab-eurosat", "top1", 0.58)])
    assert (verdicts, calls) == (["differs"], [("m", "zeroshot", [f"wds:{tmp_path / 'wds_vtab-eurosat'}"])])


def test_a_symlinked_copy_is_matched_to_its_result_rows(tmp_path: Path) -> None:
    fakes.labelled(tmp_path / "elsewhere" / "eurosat")
    (tmp_path / "root").mkdir()
    copy = tmp_path / "root" / "wds_vtab-eurosat"
    copy.symlink_to(tmp_path / "elsewhere" / "eurosat")
    name = open_dataset(f"wds:{copy}").short
    published = {"m": {("eurosat", "top1"): 0.50}}
    assert run(published, tmp_path / "root", [result(name, "top1", 0.50)])[0] == ["agrees"]


def test_missing_weights_and_data_are_listed_with_their_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replicas.dtd(tmp_path)
    published = {"absent": {("dtd", "top1"): 0.4, ("pets", "mean_per_class"): 0.8}}
    assert run(published, tmp_path, []) == ([], [])
    printed = capsys.readouterr().out
    assert "missing: absent: `hf download absent`" in printed and "missing: dtd" not in printed
    assert "missing: pets: `hf download clip-benchmark/wds_vtab-pets --repo-type dataset" in printed


def test_without_any_data_it_exits_without_a_comparison(
    no_hub: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "fetch_command", lambda model: f"`hf download {model}`")
    with pytest.raises(SystemExit) as end:
        command.validate([f"root={tmp_path}"])
    assert end.value.code == command.NOTHING_COMPARED != 0
    printed = capsys.readouterr().out
    assert printed.count("missing: ") == len(COPIES) + len(MODELS) and "nothing was checked" in printed
    assert "numbers agree" not in printed


def test_the_published_numbers_are_those_of_clip_benchmarks_own_table() -> None:
    assert set(COPIES) <= set(NAMED)
    assert published_numbers("open_clip:ViT-B-32/openai") == {
        ("imagenet", "top1"): 0.6332,
        ("cifar10", "top1"): 0.8983,
        ("cifar100", "top1"): 0.6423,
        ("clevr_count", "top1"): 0.2320,
        ("caltech101", "mean_per_class"): 0.8758,
        ("flowers102", "mean_per_class"): 0.6670,
        ("pets", "mean_per_class"): 0.8700,
        ("aircraft", "mean_per_class"): 0.1953,
        ("food101", "top1"): 0.8400,
        ("dtd", "top1"): 0.4436,
        ("sun397", "top1"): 0.6248,
        ("cars", "top1"): 0.5963,
        ("eurosat", "top1"): 0.5044,
        ("stl10", "top1"): 0.9713,
        ("mscoco", "image_to_text_recall@1"): 0.5012,
        ("mscoco", "text_to_image_recall@1"): 0.3044,
    }
