"""A run that is killed several times ends with the weights and the logged losses of an undisturbed run."""

from pathlib import Path

import pytest

from tests.bench.chaos import chaos


@pytest.mark.guards_data
@pytest.mark.long
def test_random_kills_change_no_weight_and_no_logged_loss(tmp_path: Path) -> None:
    assert chaos(tmp_path, kills=2, seed=5, steps=60) == []
