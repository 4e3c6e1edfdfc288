"""Paths of other runs, and the message if such a run is missing."""

from pathlib import Path

import pytest

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.run.folder import other_checkpoint, other_run


@pytest.mark.parametrize(
    ("arm", "name", "expected"),
    [
        ("clip", "mini-clip", "mini-start"),
        ("clip", "mini-clip-optimizer.lr_1e-3", "mini-start-optimizer.lr_1e-3"),
        ("", "mini", "mini-start"),
        ("", "mini-train.samples_64", "mini-start-train.samples_64"),
        ("clip", "chosen", "mini-start"),
    ],
)
def test_the_run_of_another_arm_has_the_same_overrides(arm: str, name: str, expected: str) -> None:
    config = RunConfig(recipe="mini", arm=arm, name=name, seed=3, runs="r")
    assert other_run(config, "arm:start") == Path("r") / expected / "s3"


def test_a_missing_run_of_an_arm_is_named_with_its_command(tmp_path: Path) -> None:
    config = RunConfig(recipe="mini", arm="clip", name="mini-clip", runs=str(tmp_path))
    with pytest.raises(UserError, match=r"mini-start/s0 does not exist.*arguments: clipx train recipe=mini arm=start"):
        other_checkpoint(config, "model.init", "arm:start")
