"""`clipx eval interpolate=`: rows at 0 and 1 are those of start and end; runs without start weights are refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cli.eval import many, one
from clipx.config.schema import EvalConfig, RunConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.towers import open_clip_towers
from clipx.run.checkpoint import WEIGHTS, resolve
from clipx.run.folder import RunFolder
from evaluation.embedding.interpolation import interpolate
from evaluation.runs import results
from evaluation.types import Result
from tests.helpers import fakes
from tests.helpers.runs import prepared, trained, untrained


def named(root: Path, name: str, seed: int = 0) -> RunConfig:
    config = prepared(root, epochs=1)
    config.name, config.seed = name, seed
    config.schedule.warmup_steps, config.optimizer.lr = 0, 0.01
    return config


def fine_tuned(root: Path) -> tuple[Path, Path]:
    """Train a run, and another one from its weights."""
    start = trained(named(root, "start"))
    config = named(root, "end", seed=1)
    config.model.init = str(start)
    return start, trained(config)


def scores(rows: list[Result]) -> list[Result]:
    """Return the rows without the model's name and seed; the hashes stay."""
    return [replace(row, model="", seed=0) for row in rows if row.task == "retrieval"]


@pytest.mark.long
def test_rows_at_0_and_1_equal_those_of_the_two_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, end = fine_tuned(tmp_path)
    config = EvalConfig(datasets=[fakes.captioned(tmp_path / "shots")], tasks=["retrieval"], device="cpu", workers=0)
    many.evaluate(replace(config, interpolate=[0.0, 0.5, 1.0]), [str(end)])
    for alpha, run in (("0", start), ("1", end)):
        one.evaluate(replace(config, checkpoint=str(run)))
        found = results.read(end / "interpolated" / alpha / "results.jsonl")
        assert scores(found) == scores(results.read(run / "results.jsonl"))
        assert found[0].model == f"end/s1 step 2, alpha {alpha}"
    half = results.read(end / "interpolated" / "0.5" / "results.jsonl")
    assert len({row.hashes["checkpoint"] for rows in (half, found) for row in rows}) == 2
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "300")  # wide enough for the names in the table
    other = trained(named(tmp_path, "other"))
    with pytest.raises(UserError, match="1 of 2 runs failed"):
        many.evaluate(replace(config, interpolate=[0.0, 1.0]), [str(end), str(other)])
    printed = capsys.readouterr().out
    assert f"{end}, alpha 0 " in printed and f"{end}, alpha 1 " in printed


def test_floating_point_weights_are_interpolated_and_counts_are_those_of_the_end(tmp_path: Path) -> None:
    start, end = fine_tuned(tmp_path)
    first, last = (load_file(resolve(run) / WEIGHTS) for run in (start, end))
    assert not torch.equal(first["image.trunk.stem.bn.running_var"], last["image.trunk.stem.bn.running_var"])
    config = RunFolder(end).load_config()
    model = clip.build_model(config)
    model.load_state_dict(last)
    assert interpolate(model, config, end, "digest", 0.25) == ""
    for key, value in model.state_dict().items():
        if value.is_floating_point():
            expected = 0.75 * first[key].double() + 0.25 * last[key].double()
            torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-7)
        else:
            assert torch.equal(value, last[key])


def test_at_0_a_run_from_a_file_scores_as_that_file(tmp_path: Path) -> None:
    open_clip_towers.tower_names()
    file = tmp_path / "published.pt"
    torch.save(open_clip_towers.create_model("mini-vit-48", None, "model.image", custom_text=False).state_dict(), file)
    config = named(tmp_path, "end")
    for tower in (config.model.image, config.model.text):
        tower.name, tower.pretrained = "open_clip:mini-vit-48", str(file)
    run = trained(config)
    spec, out = fakes.captioned(tmp_path / "shots"), str(tmp_path / "published")
    quick = EvalConfig(datasets=[spec], tasks=["retrieval"], device="cpu", workers=0)
    one.evaluate(replace(quick, checkpoint=str(run), interpolate=[0.0]))
    one.evaluate(replace(quick, model=f"open_clip:mini-vit-48/{file}", out=out))
    found, expected = (
        [(row.metric, row.value, row.low, row.high) for row in results.read(path / "results.jsonl")]
        for path in (run / "interpolated" / "0", Path(out))
    )
    assert found == expected
    file.unlink()
    with pytest.raises(UserError, match=r"model.image.pretrained=.*published.pt is neither published weights nor a"):
        one.evaluate(replace(quick, checkpoint=str(run), interpolate=[0.5], force=True))


def test_runs_without_start_weights_on_disk_are_refused(tmp_path: Path) -> None:
    quick = EvalConfig(datasets=[fakes.captioned(tmp_path / "shots")], device="cpu", workers=0, interpolate=[0.5])

    def refused(config: EvalConfig, message: str) -> None:
        with pytest.raises(UserError, match=message) as error:
            one.evaluate(config)
        assert "\n" not in str(error.value)

    start = named(tmp_path, "start")
    run = untrained(start)
    refused(replace(quick, checkpoint=str(run)), r"start weights on disk, but .* started from a random image tower")
    refused(replace(quick, model="open_clip:mini-48/random"), "interpolate= needs a run with start weights, not model=")
    half = named(tmp_path, "half")
    half.model.image.pretrained = "tag"
    refused(replace(quick, checkpoint=str(untrained(half))), r"random text tower \(model.text.pretrained and")
    end = named(tmp_path, "end")
    end.model.init = str(run)
    changed = untrained(end)
    (changed / "environment.json").write_text('{"init": {"checkpoint": "step_1", "sha256": "0"}}')
    refused(
        replace(quick, checkpoint=str(changed)), r"start weights of .*end/s0, step_1; model.init=.* now gives others"
    )
    end.name, end.model.init = "lost", str(tmp_path / "nowhere")
    refused(replace(quick, checkpoint=str(untrained(end))), r"model.init=.*nowhere is missing")
