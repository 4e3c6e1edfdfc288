"""`clipx eval` of one run: input checks before a model is built, the best checkpoint, the popularity analysis."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cli.eval.one import evaluate
from clipx.config.evaluation import EvalConfig
from clipx.config.schema import RunConfig
from clipx.data.sources.opening import open_source
from clipx.errors import UserError
from clipx.run.folder import RunFolder
from clipx.run.saving import TrainState
from clipx.training import setup
from evaluation.claims.measures import value_title
from evaluation.embedding import encoder
from evaluation.runs import items, results
from tests.helpers import fakes
from tests.helpers.folder import settings, write_shards
from tests.helpers.runs import prepared, untrained


def retrieval(run: Path, *specs: str) -> EvalConfig:
    return EvalConfig(checkpoint=str(run), datasets=[*specs], tasks=["retrieval"], device="cpu", workers=0)


def started(config: RunConfig) -> tuple[Path, TrainState]:
    """Write the folder of a run on 12 pairs; return it and the state before the first step."""
    config.model.image.name = "small:conv"  # built ten times as fast as a tower of open_clip
    write_shards(Path(str(config.data.root)) / "train", 12)
    pairs = open_source(config.data)
    state = setup.build_components(config, torch.device("cpu"), len(pairs), pairs.fingerprint).state
    return RunFolder.create(config).path, state


def test_data_tasks_and_prompts_are_checked_before_the_model_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "from_open_clip", None)  # a call would fail
    right = EvalConfig(model="open_clip:ViT-B-32/openai", datasets=[fakes.captioned(tmp_path / "shots")])
    for config, part in (
        (replace(right, datasets=["wds:nowhere"]), "no folder nowhere"),
        (replace(right, tasks=["zeroshoot"]), "did you mean 'zeroshot'"),
        (replace(right, prompts="simpel"), "prompts=simpel is not known"),
    ):
        with pytest.raises(UserError, match=part):
            evaluate(config)


def test_results_of_an_earlier_checkpoint_do_not_mix_with_those_of_the_run(tmp_path: Path) -> None:
    config = settings(tmp_path)
    run, state = started(config)
    first = state.save(run)
    state.step = 5
    state.save(run)
    own = retrieval(run, fakes.captioned(tmp_path / "shots"))
    evaluate(own)
    of_run = results.read(run / "results.jsonl")
    evaluate(replace(own, checkpoint=str(first)))
    assert results.read(run / "results.jsonl") == of_run
    of_first = results.read(run / "intermediate" / first.name / "results.jsonl")
    assert [row.metric for row in of_first] == [row.metric for row in of_run]
    answers = items.read(run / "intermediate" / first.name)["hashes"].unique().to_pylist()
    assert {json.loads(hashes)["checkpoint"] for hashes in answers} == {row.hashes["checkpoint"] for row in of_first}


def test_results_of_a_run_that_is_still_training_do_not_become_those_of_the_run(
    copied_run: tuple[RunConfig, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, run = copied_run
    log = (run / "log.jsonl").read_text()
    own = retrieval(run, fakes.captioned(tmp_path / "shots"))
    (run / "log.jsonl").write_text('{"step": 2}\n')
    before = results.read(run / "results.jsonl")
    evaluate(own)
    assert results.read(run / "results.jsonl") == before
    of_checkpoint = run / "intermediate" / RunFolder(run).checkpoints[-1].name
    assert results.read(of_checkpoint / "results.jsonl") and len(items.read(of_checkpoint))
    assert "is not fully trained (step" in capsys.readouterr().err
    evaluate(replace(own, out=str(tmp_path / "out")))
    assert f"results go to {tmp_path / 'out'}" in capsys.readouterr().err
    (run / "log.jsonl").write_text(log)
    (run / "artifacts").mkdir(exist_ok=True)
    (run / "artifacts/retrieval-shots.json").write_text("{")  # the evaluation replaces it
    evaluate(own)
    assert len(results.read(run / "results.jsonl")) > len(before)


def test_a_set_of_the_run_that_has_gone_does_not_stop_the_others(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    config.data.evaluation = ["captions:gone", "captions:shots"]
    fakes.captioned(tmp_path / "shots")
    run = untrained(config)
    with pytest.raises(UserError, match=r"no folder .*gone"):
        evaluate(retrieval(run))
    assert {row.dataset for row in results.read(run / "results.jsonl")} == {"shots"}


def test_a_run_with_zeta_is_compared_with_the_optimum_of_its_training_pairs(tmp_path: Path) -> None:
    config = settings(tmp_path)
    config.objective = {"nuclr": {}}
    run, state = started(config)
    ids = torch.arange(12)
    state.table.write(ids, state.table.read(ids) | {"nuclr_seen": torch.ones(12), "nuclr_zeta_text": ids.float()})
    state.save(run)
    evaluate(retrieval(run, fakes.captioned(tmp_path / "shots")))
    rows = {row.metric: row for row in results.read(run / "results.jsonl") if row.task == "popularity"}
    assert set(rows) == {"zeta_text_sinkhorn_spearman", "zeta_image_sinkhorn_spearman"}
    assert rows["zeta_text_sinkhorn_spearman"].n == 12


def test_a_set_that_the_run_was_trained_on_is_marked_and_moved_data_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(tmp_path)
    config.data.held_out, config.data.root = 0.5, str(tmp_path / "data")
    run, state = started(config)
    state.save(run)
    root = tmp_path / "data"
    evaluate(retrieval(run, f"captions:{root}/train"))
    assert "data/train, training pairs" in capsys.readouterr().out
    rows = results.read(run / "results.jsonl")
    assert {value_title(row) for row in rows} == {"retrieval data/train (training pairs)"}  # so in each table
    root.rename(tmp_path / "moved")
    with pytest.raises(
        UserError, match=r"no folder .*; if it has moved, repeat the run's `clipx train` with data.root="
    ):
        evaluate(retrieval(run, "held_out"))
