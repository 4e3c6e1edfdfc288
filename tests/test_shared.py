"""Shared data and runs are made once; a copied run is independent of the original."""

from pathlib import Path

from clipx.config.schema import RunConfig
from clipx.run.folder import RunFolder
from clipx.train import Outcome, fit
from tests.helpers.runs import log, weights
from tests.helpers.shared import once


def test_a_folder_is_filled_once_and_again_after_a_failure(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        (folder / "file").touch(exist_ok=False)
        made.append(folder)
        assert len(made) > 1

    for _ in range(3):
        try:
            once(tmp_path / "a", make)
        except AssertionError:
            continue
    assert len(made) == 2 and (tmp_path / "a" / "file").exists()


def test_a_copied_run_is_finished_and_a_longer_one_leaves_the_shared_run_as_it_is(
    trained_run: Path, copied_run: tuple[RunConfig, Path]
) -> None:
    config, run = copied_run
    assert RunFolder.create(config).path == run and fit(config, run) is Outcome.FINISHED
    assert log(run) == log(trained_run)
    (run / "log.jsonl").write_text("")
    assert log(trained_run) and weights(run).keys() == weights(trained_run).keys()
