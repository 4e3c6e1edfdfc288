"""`clipx bench`: ratios of step times, claims.json for the report, wrong input."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from cli import bench as command
from cli.bench import BENCHMARKS, Benchmark, added_state, bench, parameters
from cli.settings.compose import compose_run
from cli.settings.recipes import recipe
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.training.forecast import timed_steps
from evaluation.claims.evidence import collect_evidence
from evaluation.claims.table import CLAIMS

RECIPE = """
data: {name: test, source: shards, root: nowhere}
model: {image: {name: "open_clip:light-48"}, text: {name: "open_clip:light-48", pretrained: no_such_weights}}
train: {epochs: 10, batch_size: 64}
temperature: {kind: fixed}
arms:
  clip: [objective=clip]
  nuclr: [objective=nuclr]
"""


@pytest.fixture
def tiny(light_tower: None, own_recipes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the benchmark `nuclr` use small towers; its weights and data do not exist, so it must not read them."""
    (own_recipes / "tiny.yaml").write_text(RECIPE)
    monkeypatch.chdir(own_recipes)
    monkeypatch.setitem(BENCHMARKS, "nuclr", Benchmark("tiny", "clip", ("nuclr",), "3.6", 1.03, added_state))


def test_the_report_reads_the_written_claims(tiny: None, capsys: pytest.CaptureFixture[str]) -> None:
    bench(["nuclr", "steps=2"])
    folder = Path("runs/bench/nuclr")
    row, size = json.loads((folder / "claims.json").read_text())
    assert size["claim"] == "3.13" and size["measured"] == {"MB for 12 million pairs": 96.0}
    assert size["verdict"] == "holds" and size["settings"] == {}
    assert row["claim"] == "3.6" and row["verdict"] == "undecided" and row["settings"] == {}
    assert row["measured"].keys() == row["expected"].keys() == {"ratio of step times nuclr / clip"}
    assert "batch of 16 instead of 64, cpu" in row["statement"] and "steps of each arm: 2" in row["statement"]
    with (folder / "times.csv").open() as file:
        times = list(csv.DictReader(file))
    assert len(times) == 2 and all(float(seconds) > 0 for block in times for seconds in block.values())
    assert [finding.label for finding in collect_evidence([], [Path("runs")]).stated["3.6"]] == [row["statement"]]
    out = capsys.readouterr().out
    assert "3.6  undecided" in out and str(folder / "claims.json") in out
    assert "<= 1.03" in out


@pytest.fixture
def quick(tiny: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Do no real steps. Return a list of the batch sizes tried; nuclr fits with 4 or 32, but not with 8 or 16."""
    tried = []

    def build(config: RunConfig, device: torch.device) -> Callable[[], float]:
        tried.append(config.train.batch_size)
        if config.train.batch_size in (8, 16) and "nuclr" in config.objective:
            raise torch.OutOfMemoryError
        return lambda: 1.0

    monkeypatch.setattr("clipx.training.forecast.timed_steps", build)
    monkeypatch.setattr(command, "_check_memory", lambda configs: None)
    return tried


def test_with_the_users_settings_no_claim_is_decided_and_the_batch_is_a_multiple_of_micro_batches(
    quick: list[int],
) -> None:
    bench(["nuclr", "steps=1", "train.accumulation=32", "train.device=cpu", "out=own"])
    rows = json.loads(Path("own/claims.json").read_text())
    assert "batch of 32 instead of 64, cpu" in rows[0]["statement"]
    assert [row["settings"] for row in rows] == [{"train.accumulation": "32", "train.device": "cpu"}] * 2
    assert collect_evidence([], [Path("own")]).stated == {}


def test_a_comparison_of_the_users_writes_no_claims(quick: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    bench(["recipe=tiny", "arms=[nuclr]", "steps=2", "train.batch_size=4"])
    out = capsys.readouterr().out
    assert Path("runs/bench/tiny-arms=nuclr-train.batch_size=4/times.csv").exists()
    assert "ratio to clip" in out and "batch of 4, cpu" in out and "expected" not in out
    assert [path.name for path in Path("runs").rglob("*") if path.is_file()] == ["times.csv"]


def test_arms_whose_batch_or_precision_would_be_replaced_are_refused(quick: list[int]) -> None:
    for key, value in (("train.batch_size", "32"), ("train.precision", "bf16")):
        Path("own.yaml").write_text(RECIPE.replace("[objective=nuclr]", f"[objective=nuclr, {key}={value}]"))
        with pytest.raises(UserError, match=rf"the arms have different {key} \(.*\b{value}\b.*\): give {key}= for all"):
            bench(["recipe=own", "steps=1"])
        assert quick == []
        bench(["recipe=own", "steps=1", f"{key}={value}"])
        quick.clear()


def test_arms_that_need_more_memory_than_is_free_are_refused(tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clipx.utils.device.free_memory", lambda device: 1_000_000)
    with pytest.raises(UserError, match=r"train.batch_size=16 with 2 arms needs .* but 0.0 GB are free"):
        bench(["nuclr", "steps=1"])


def test_the_batch_is_halved_until_it_fits_on_the_gpu(quick: list[int]) -> None:
    configs = {arm: compose_run(["recipe=tiny", f"arm={arm}"]) for arm in ("clip", "nuclr")}
    steps, conditions = command._ready(configs, [])
    assert list(steps) == ["clip", "nuclr"] and "batch of 4 instead of 64" in conditions
    assert quick == [16, 16, 8, 8, 4, 4]


def test_timed_steps_are_those_after_the_frozen_epochs(tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """NUCLR freezes zeta in the first 5 epochs, in which a step takes less time."""
    timed_step = MagicMock(return_value=(0.0, 1.0))
    monkeypatch.setattr("clipx.training.forecast.timed_step", timed_step)
    timed_steps(compose_run(["recipe=tiny", "arm=nuclr"]), torch.device("cpu"))()
    ((_, progress),) = (call.args for call in timed_step.call_args_list)
    assert (progress.epoch, progress.total_epochs) == (5, 10)
    assert progress.step == progress.total_steps // 2 > 0


@pytest.mark.parametrize("arm", ["negclip", "multi_positive", "keyword"])
def test_generated_pairs_have_the_inputs_that_a_term_needs(arm: str) -> None:
    assert timed_steps(compose_run(["recipe=objectives_mini", f"arm={arm}"]), torch.device("cpu"))() > 0


def test_point_sets_hardly_add_parameters() -> None:
    """With paper 5's towers: 149.66 million parameters with point sets, 149.62 million without."""
    found = parameters({arm: compose_run(["recipe=wpse_cc3m", f"arm={arm}"]) for arm in ("clip", "imq")})
    (check,) = found.checks
    assert found.verdict == "holds" and check.high == 1.01
    assert check.measured == pytest.approx(149.66 / 149.62, abs=1e-4)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_times_arms_of_its_recipe_and_its_claim_exists(name: str) -> None:
    benchmark = BENCHMARKS[name]
    assert {benchmark.reference, *benchmark.arms} <= set(recipe(benchmark.recipe).arms)
    assert benchmark.claim in {claim.id for claim in CLAIMS}
