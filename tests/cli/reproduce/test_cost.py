"""dry=true prints the steps, GPU-hours and disk space of all runs, and the assumptions of the estimate."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.reproduce import cost
from cli.reproduce.cost import Cost, Counts, checkpoint_bytes, estimate, print_costs
from cli.reproduce.plan import Options, composed, make_plan
from cli.settings.compose import compose_run
from clipx.config.presets import num_pairs
from clipx.config.schema import RunConfig
from clipx.run.folder import TIMING, RunFolder
from clipx.training.cost import StepCost, count_step
from clipx.training.devices import DEVICES
from tests.helpers import synthetic


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every step have 1e12 FLOPs (1e10 of them in the objective), every checkpoint 1 GB, and loaders no cost."""
    monkeypatch.setattr("clipx.training.loader_rate.images_per_s", lambda *of: 1e12)
    step = StepCost(10**12 - 10**10, 10**10, 10**6, 10**6, 1, {})
    monkeypatch.setattr(cost, "count_step", lambda config: step)
    monkeypatch.setattr(cost, "checkpoint_bytes", lambda config, step: 10**9)


def cost_of(config: RunConfig, device: str = "H100", share: float = 0.5) -> Cost:
    found = estimate(config, DEVICES[device], share, {})
    assert found is not None
    return found


def test_the_estimated_size_of_checkpoints_is_that_on_disk() -> None:
    on_disk = 3_068_716 + 6_146_499  # model.safetensors and training.pt of such a run
    config = compose_run(["recipe=gap_mini", "arm=base"])
    assert checkpoint_bytes(config, count_step(config)) == pytest.approx(on_disk, rel=0.003)


def test_gpu_hours_use_the_peak_of_the_runs_precision(counted: None) -> None:
    config = compose_run(["recipe=wpse_cc3m", "arm=imq"])
    found = cost_of(config)
    assert found.steps == 50 * (2_786_288 // 2048)
    in_objective = 1e10 / (0.5 * 67e12)
    assert found.gpu_hours == pytest.approx(found.steps * (0.99e12 / (0.5 * 989e12) + in_objective) / 3600)
    assert found.disk == 2 * 10**9
    for precision, factor in (("fp32", 989 / 67), ("tf32", 2)):
        full = replace(config, train=replace(config.train, precision=precision))
        seconds = 0.99e12 * factor / (0.5 * 989e12) + in_objective
        assert cost_of(full).gpu_hours == pytest.approx(found.steps * seconds / 3600)


def test_disk_space_includes_the_sample_table_and_a_short_run_keeps_one_checkpoint(counted: None) -> None:
    nuclr = compose_run(["recipe=nuclr_cc12m", "arm=nuclr"])
    short = replace(nuclr, train=replace(nuclr.train, epochs=None, samples=512))
    many, one = (cost_of(config, "A100", 0.3) for config in (nuclr, short))
    assert one.disk == 10**9 + 4 * 5 * 9_184_256  # and five columns of 4 bytes per pair
    assert many.disk == nuclr.train.keep * one.disk


def test_a_run_takes_the_slower_of_gpu_and_loaders(counted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clipx.training.loader_rate.images_per_s", lambda *of: 100.0)
    config = compose_run(["recipe=wpse_cc3m", "arm=imq", "data.workers=4", "data.augment=workers"])
    found = cost_of(config)
    assert found.loaders.startswith("(cores: 4); use data.augment=device, data.cache=memory (730 GB)")
    assert found.gpu_hours == pytest.approx(found.steps * 2048 / (4 * 100) / 3600)
    known: Counts = {}
    for name, size in (("cc3m", "730 GB"), ("cc12m", "2,405 GB")):
        of_set = estimate(replace(config, data=replace(config.data, name=name)), DEVICES["H100"], 0.5, known)
        assert of_set is not None and size in of_set.loaders
    without = replace(config, data=replace(config.data, workers=0))
    assert cost_of(without).gpu_hours > found.steps * 2048 / 100 / 3600


def test_an_epoch_has_a_pair_per_image_or_per_caption() -> None:
    of_images, of_captions = (
        num_pairs(compose_run(["recipe=gap_mscoco", f"data.captions={which}"])) for which in ("random", "each")
    )
    assert (of_images, of_captions) == (82_783, 414_113)


def configs(tmp_path: Path) -> list[RunConfig]:
    return composed(make_plan(["recipe=gap_mini", "arms=base,slrt", f"runs={tmp_path}"]).overrides)


def checkpoint(run: Path, step: int, data: str = "10000:abc") -> None:
    folder = run / "checkpoints" / f"step_{step:08d}"
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text(
        json.dumps({"step": step, "data": data, "sha256": {"model.safetensors": "a", "training.pt": "b"}})
    )


def test_a_run_is_finished_after_its_last_step_and_all_its_evaluations(tmp_path: Path) -> None:
    config = compose_run(["recipe=nuclr_mini", "arm=clip", f"runs={tmp_path}"])
    without = replace(config, data=replace(config.data, evaluation=[]))
    run = RunFolder.of(config).path
    assert cost.state_of(config) == "new"
    checkpoint(run, 100)
    assert cost.state_of(config) == cost.state_of(without) == "at step_00000100"
    RunFolder(run).record_divergence(110, 10)
    assert cost.state_of(config) == "trained"
    (run / "outcome.json").unlink()
    checkpoint(run, 30 * (2700 // 32), "3000:abc")  # 3,000 of 10,000 pairs were found, 300 of them are held out
    assert (cost.state_of(config), cost.state_of(without)) == ("trained", "finished")
    (run / "results.jsonl").touch()  # the first of several evaluations writes it
    assert cost.state_of(config) == "trained"
    (run / TIMING).touch()
    assert cost.state_of(config) == "finished"


def test_each_arm_has_a_line_for_all_seeds_before_totals_and_assumptions(
    counted: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = [{"step": 4200, "samples": 268800, "images_per_s": 268800 / 90}]  # 90 seconds
    done = synthetic.run("gap_mini", "base", 0, {}, log)
    checkpoint(synthetic.write(tmp_path, done), 4200)
    print_costs(configs(tmp_path), Options(share=0.35), 2, tmp_path / "report")
    lines = capsys.readouterr().out.splitlines()
    numbers = "s0..s2 64 pairs/step 4,200 steps, each <0.1 GPU-h 0.99 GB 1 trained, 2 new"
    assert lines[0].split()[1:] == numbers.split()
    assert lines[1].endswith("3 new")
    assert lines[3].startswith(
        "all: 0.3 GPU-hours of training, 6.0 GB of checkpoints; not trained yet: 0.2 GPU-hours of"
    )
    assert "share=0.35 of one H100's peak (989 TFLOP/s in bf16, 67 in fp32)" in lines[4]


def test_known_and_unknown_costs_are_printed_together(
    counted: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = compose_run(["recipe=wpse_cc3m", "arm=imq", "data=shards", "data.name=mine", f"runs={tmp_path}"])
    print_costs([*configs(tmp_path), own], Options(device="H100", share=0.35), 1, tmp_path / "report")
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("all:")]
    assert line.startswith("all: 0.3 GPU-hours") and line.endswith(
        "GB of checkpoints, unknown for 1 runs, because their number of pairs is unknown"
    )
    assert "pairs of mine: unknown; train.samples=N train.epochs=null sets the length of a run" in lines


def test_hours_here_follow_from_a_timed_step_unless_it_is_too_long_for_a_cpu(
    counted: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    length = ["train.samples=64000", "train.epochs=null"]
    config = compose_run(["recipe=gap_mini", "arm=base", *length, f"runs={tmp_path}"])
    monkeypatch.setattr(cost, "timed_steps", lambda config, device: lambda: 3.6)
    print_costs([config], Options(), 2, tmp_path)
    assert "here: " not in capsys.readouterr().out  # 1e12 FLOPs
    monkeypatch.setattr(cost, "MOST_FLOPS", 10**13)
    print_costs([config], Options(), 2, tmp_path)
    assert "here: 0.5 hours of training for all runs" in capsys.readouterr().out
