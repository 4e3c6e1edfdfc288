"""`clipx eval`: wrong input is refused before a model is fetched or built."""

from pathlib import Path

import pytest

from cli.eval import _best_or_last, evaluate
from clipx.config.schema import EvalConfig
from clipx.errors import UserError
from clipx.run import checkpoint, directory
from evaluation.embedding import encoder
from tests.helpers import fakes
from tests.helpers.folder import settings


@pytest.mark.parametrize(
    ("datasets", "tasks", "prompts", "part"),
    [
        (["wds:nowhere"], [], "ensemble", "no folder nowhere"),
        (["cifar"], [], "ensemble", "did you mean 'cifar10'"),
        (["captions:HERE"], ["zeroshoot"], "ensemble", "did you mean 'zeroshot'"),
        (["captions:HERE"], [], "simpel", "prompts=simpel is not known"),
    ],
)
def test_data_tasks_and_prompts_are_checked_before_the_model_is_built(
    datasets: list[str], tasks: list[str], prompts: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes.captioned(tmp_path / "shots")
    places = [name.replace("HERE", str(tmp_path / "shots")) for name in datasets]

    def build(name: str, device: object, precision: str) -> None:
        raise AssertionError("built")

    monkeypatch.setattr(encoder, "from_open_clip", build)
    with pytest.raises(UserError, match=part):
        evaluate(EvalConfig(model="open_clip:ViT-B-32/openai", datasets=places, tasks=tasks, prompts=prompts))


def test_the_best_checkpoint_of_a_run_is_evaluated_if_it_keeps_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(tmp_path)
    config.train.keep_best = "min:loss"
    run = directory.claim(config)
    first, last = (run / "checkpoints" / f"step_{step:08d}" for step in (10, 20))
    for folder in (first, last):
        folder.mkdir(parents=True)
        (folder / checkpoint.MANIFEST).write_text("{}")
    (first.parent / "best").symlink_to(first.name)
    assert _best_or_last(run) == first
    assert f"evaluating {first}, because train.keep_best=min:loss" in capsys.readouterr().err
    assert _best_or_last(last) == last
