"""A run that is killed again and again ends in the weights of one that was not."""

from pathlib import Path

import pytest

from tests.bench.chaos import chaos


@pytest.mark.slow
def test_three_random_kills_of_one_worker_or_all_change_no_bit(tmp_path: Path) -> None:
    assert chaos(tmp_path, kills=3, seed=5, steps=150) == []
