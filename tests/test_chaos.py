"""A run that is killed several times ends with the weights of an undisturbed run."""

from pathlib import Path

import pytest

from tests.bench.chaos import chaos


@pytest.mark.long
def test_random_kills_of_one_or_all_workers_change_no_bit_of_the_weights(tmp_path: Path) -> None:
    assert chaos(tmp_path, kills=2, seed=5, steps=60) == []
