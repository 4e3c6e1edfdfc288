"""Comparison with published numbers: tolerance, matching of data sets, missing weights and data."""

from pathlib import Path

import pytest

from cli import validate as command
from cli.validate import COPIES, MODELS, agrees, compare_all
from evaluation.datasets.named import NAMED
from evaluation.datasets.opening import open_dataset
from evaluation.published import counterpart
from evaluation.types import Result
from tests.helpers import fakes, replicas

Calls = list[tuple[str, str, list[str]]]
MODEL = "open_clip:ViT-B-32/openai"  # published: DTD .4436, EuroSAT .5044


def result(dataset: str, metric: str, value: float) -> Result:
    return Result("zeroshot", dataset, "test", metric, value, 8, value - 0.1, value + 0.1, None, True, 0, "m")


def run(root: Path, rows: list[Result]) -> tuple[list[bool], Calls]:
    calls: Calls = []

    def evaluate(model: str, task: str, specs: list[str]) -> list[Result]:
        calls.append((model, task, specs))
        return rows

    return [agrees(*one) for one in compare_all([MODEL], root, lambda model: "", evaluate)], calls


@pytest.mark.parametrize(("measured", "expected"), [(0.4466, True), (0.4406, True), (0.447, False), (0.44, False)])
def test_the_tolerance_is_three_tenths_of_a_point(tmp_path: Path, measured: float, expected: bool) -> None:
    replicas.dtd(tmp_path)
    rows = [result("dtd", "top1", measured), result("dtd", "mean_per_class", 0.4436)]
    assert run(tmp_path, rows)[0] == [expected]


def test_the_benchmarks_copy_is_preferred_and_our_own_split_is_compared_by_its_interval(tmp_path: Path) -> None:
    replicas.eurosat(tmp_path)
    assert run(tmp_path, [result("eurosat", "top1", 0.58)]) == ([True], [(MODEL, "zeroshot", [f"eurosat:{tmp_path}"])])
    copy = fakes.labelled(tmp_path / "wds_vtab-eurosat")
    rows = [result(open_dataset(copy).short, "top1", 0.58)]
    assert run(tmp_path, rows) == ([False], [(MODEL, "zeroshot", [copy])])


def test_a_symlinked_copy_is_matched_to_its_result_rows(tmp_path: Path) -> None:
    fakes.labelled(tmp_path / "elsewhere" / "eurosat")
    copy = tmp_path / "wds_vtab-eurosat"
    copy.symlink_to(tmp_path / "elsewhere" / "eurosat")
    name = open_dataset(f"wds:{copy}").short
    assert run(tmp_path, [result(name, "top1", 0.5044)])[0] == [True]
    assert run(tmp_path, [result(name, "top1", 0.58)])[0] == [False], "a copy has the published split"


def test_without_any_data_it_exits_without_a_comparison(
    no_hub: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "fetch_command", lambda model: f"`hf download {model}`")
    with pytest.raises(SystemExit) as end:
        command.validate([f"root={tmp_path}"])
    assert end.value.code == command.NOTHING_COMPARED != 0
    printed = capsys.readouterr().out
    assert printed.count("missing: ") == len(COPIES) + len(MODELS) and "nothing was checked" in printed
    assert f"missing: {MODEL}: `hf download {MODEL}`" in printed
    assert "missing: pets: `hf download clip-benchmark/wds_vtab-pets --repo-type dataset" in printed
    assert "numbers agree" not in printed


def test_every_set_is_known_and_has_a_published_main_metric() -> None:
    assert set(COPIES) <= set(NAMED)
    for name in {*COPIES} - {"mscoco"}:
        assert counterpart(result(name, "top1", 0.5)) or counterpart(result(name, "mean_per_class", 0.5)), name
        copy = result(COPIES[name], "top1", 0.5)
        assert counterpart(copy) or counterpart(result(COPIES[name], "mean_per_class", 0.5)), COPIES[name]
