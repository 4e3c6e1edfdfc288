"""`clipx eval`: what is wrong is said before a model is fetched or built."""

from pathlib import Path

import pytest

from cli.evaluate import evaluate
from clipx.config import EvalConfig
from clipx.errors import UserError
from evaluation import encoder
from tests.evaluation import fakes


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
