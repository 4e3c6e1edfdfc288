"""Scores during training equal those of `clipx eval`, on one rank and on two, and do not change the run."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from cli import train as launch
from cli.eval.one import evaluate
from clipx import train
from clipx.config.evaluation import EvalConfig
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.clip import ClipModel
from clipx.run.checkpoint import checkpoints
from clipx.run.folder import RunFolder
from clipx.training.setup import build_components
from evaluation.datasets.composition import CHANGES
from evaluation.during_training import (
    CHEAP,
    build_periodic_evaluator,
    check_evaluation,
    own_datasets,
)
from evaluation.runs import results
from evaluation.runs.reader import read
from tests.helpers import fakes, replicas
from tests.helpers.folder import settings, write_shards
from tests.helpers.gloo import Gloo
from tests.helpers.runs import log

KEYS = [
    "things zeroshot top1",
    "shots/test retrieval image_to_text_recall@1",
    "shots/test retrieval text_to_image_recall@1",
    "minimal pairs pair_accuracy",
    "sugar_crepe choices accuracy",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of training data and evaluation sets.

    The images or texts of a set fill one to eight batches of 8, the batch size of the run.
    """
    root = tmp_path_factory.mktemp("data")
    write_shards(root / "train", samples=32)
    fakes.labelled(root / "things", train=9, test=60)
    fakes.labelled(root / "without_test", train=3, test=0)
    fakes.captioned(root / "shots" / "test", counts=(2, 1, 3) * 10)
    fakes.pairs(root / "minimal", categories=("colour", "count") * 5)
    replicas.sugar_crepe(root / "sets", dict.fromkeys(CHANGES, 2))
    return root


def evaluated_config(data: Path, root: Path) -> RunConfig:
    """Return the config of a run of four steps with batch norms, in root/runs."""
    config = settings(data, epochs=1)
    config.model.image.name = "small:conv"
    config.runs, config.train.device = str(root / "runs"), "cpu"
    config.data.evaluation = ["wds:things", "captions:shots/test", "pairs:minimal", "sugar_crepe:sets"]
    config.log.evaluate_every = 3
    return config


def scores_of_eval(run: Path, batch_size: int) -> dict[str, float]:
    """Return the scores of the last checkpoint from `clipx eval`."""
    evaluate(EvalConfig(checkpoint=str(run), tasks=list(CHEAP), device="cpu", workers=0, batch_size=batch_size))
    return {f"{row.dataset} {row.task} {row.metric}": row.value for row in results.read(run / "results.jsonl")}


def random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]


def trained(config: RunConfig, every: int) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Train with a dropout of 0.5 after the image tower, and evaluate every `every` steps; return log and weights."""
    config.name, config.log.every, config.log.evaluate_every = f"every_{every}", 1, every
    run, evaluator = RunFolder.create(config).path, build_periodic_evaluator(config)

    def with_dropout(*arguments: Any) -> Any:
        components = build_components(*arguments)
        components.state.model.image = nn.Sequential(components.state.model.image, nn.Dropout(0.5))
        return components

    def undisturbed(model: ClipModel) -> dict[str, float]:
        assert evaluator is not None and model.training
        before = random_states()
        found = evaluator(model)
        assert random_states() == before and model.training
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "build_components", with_dropout)
        assert train.fit(config, run, evaluate=undisturbed) is train.Outcome.FINISHED
    return log(run), load_file(checkpoints(run)[-1] / "model.safetensors")


def test_evaluating_does_not_change_the_run(data: Path, tmp_path: Path) -> None:
    """The model has batch norms and dropout. Equal losses show that the loader's state does not change either."""
    rows, weights = trained(evaluated_config(data, tmp_path), every=1)
    expected_rows, expected = trained(evaluated_config(data, tmp_path), every=0)
    assert any("running_mean" in name for name in weights)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    steps, scores = ([row for row in rows if ("evaluation" in row) == is_score] for is_score in (False, True))
    assert [row["loss"] for row in steps] == [row["loss"] for row in expected_rows]
    assert [(row["step"], list(row["evaluation"])) for row in scores] == [(step, KEYS) for step in (1, 2, 3, 4)]
    assert not any("evaluation" in row for row in expected_rows)


def test_the_logged_scores_equal_those_of_eval(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = evaluated_config(data, tmp_path)
    run = RunFolder.of(config).path
    launch.train(config)
    lines = [line for line in log(run) if "evaluation" in line]
    assert [line["step"] for line in lines] == [3, 4]
    found = lines[-1]["evaluation"]
    mean = sum(found.values()) / len(found)
    assert f"step 4  evaluation {mean:.3f}" in capsys.readouterr().err
    assert read(run).log[-1] == {**log(run)[-2], **lines[-1]}  # one entry per step for the report
    assert not (run / "results.jsonl").exists() and not (run / "artifacts").exists()
    of_eval = scores_of_eval(run, EvalConfig().batch_size)
    assert found == {key: of_eval[key] for key in KEYS}


def fit_as_rank(config: RunConfig) -> bool:
    run, evaluator = RunFolder.of(config).path, build_periodic_evaluator(config)
    return train.fit(config, run, evaluate=evaluator) is train.Outcome.FINISHED


@pytest.mark.long
def test_two_ranks_log_the_scores_of_one(data: Path, tmp_path: Path, gloo: Gloo) -> None:
    """The running statistics of the ranks differ; the scores use rank 0's, which the checkpoint stores."""
    config = evaluated_config(data, tmp_path)
    run = RunFolder.create(config).path
    assert gloo.run(2, fit_as_rank, config) == [True, True]
    found = log(run)[-1]["evaluation"]
    of_eval = scores_of_eval(run, 8)
    assert found == {key: of_eval[key] for key in KEYS}


def test_non_finite_embeddings_count_as_misses(data: Path, tmp_path: Path) -> None:
    config = evaluated_config(data, tmp_path)
    evaluator, model = build_periodic_evaluator(config), clip.build_model(config)
    with torch.no_grad():
        next(model.image.parameters()).fill_(float("nan"))
    assert evaluator is not None and evaluator(model) == dict.fromkeys(KEYS, 0.0)


def test_missing_sets_are_named_before_training(data: Path, tmp_path: Path) -> None:
    config = evaluated_config(data, tmp_path)
    config.data.evaluation += ["pairs:nowhere", "captions:absent"]
    with pytest.raises(UserError, match=r"^datasets=pairs:\S+/nowhere: .*; datasets=captions:"):
        launch.train(config)
    assert not (RunFolder.of(config).path / "log.jsonl").exists()


def test_evaluation_sets_that_fit_no_task_are_refused(data: Path, tmp_path: Path) -> None:
    config = evaluated_config(data, tmp_path)
    config.data.evaluation = ["wds:without_test"]
    with pytest.raises(UserError, match=r"log.evaluate_every=3: none of data.evaluation=.* can be scored"):
        build_periodic_evaluator(config)


def test_fit_without_an_evaluator_refuses_evaluate_every(data: Path, tmp_path: Path) -> None:
    config = evaluated_config(data, tmp_path)
    with pytest.raises(UserError, match=r"log.evaluate_every=3 needs fit\(..., evaluate=...\)"):
        train.fit(config, RunFolder.create(config).path)


def test_held_out_pairs_may_be_an_evaluation_set_of_the_run(tmp_path: Path) -> None:
    config = settings(tmp_path)
    config.data.evaluation, config.data.held_out = ["held_out", "captions:test"], 0.1
    assert own_datasets(config) == [f"held_out:{tmp_path}/runs/test/s0", f"captions:{tmp_path}/test"]
    assert own_datasets(config, tmp_path / "moved")[0] == f"held_out:{tmp_path}/moved"
    config.data.evaluation, config.sets = ["cifar10:evaluation", "captions:~/test"], "all"  # for sets with names
    assert own_datasets(config) == ["cifar10:all", f"captions:{Path.home()}/test"]
    config.data.evaluation = ["held_out"]
    config.data.held_out = 0.0
    with pytest.raises(UserError, match=r"data\.evaluation=.*set data\.held_out"):
        own_datasets(config)


def test_tasks_are_checked_before_training_with_the_kind_of_the_held_out_pairs(data: Path, tmp_path: Path) -> None:
    config = evaluated_config(data, tmp_path)
    config.data.evaluation, config.data.held_out = ["held_out", "wds:things"], 0.1
    check_evaluation(config, EvalConfig(tasks=["retrieval", "zeroshot"]))
    config.data.evaluation = ["held_out"]
    check_evaluation(config, EvalConfig(tasks=["retrieval", "geometry"]))
    with pytest.raises(UserError, match=r"tasks=zeroshot needs a labelled data set"):
        check_evaluation(config, EvalConfig(tasks=["retrieval", "zeroshot"]))
    with pytest.raises(UserError, match=r"tasks=retreival is not known; did you mean 'retrieval'"):
        check_evaluation(config, EvalConfig(tasks=["retreival"]))
