"""Learned popularity: correlation with the true one, zeta by sample and side, captions at both ends."""

import json
import statistics
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.folder import FINISHED, FORMAT
from clipx.data.sources.opening import open_source
from clipx.run import checkpoint, directory
from clipx.training import setup
from evaluation.analyses import popularity
from evaluation.report import writer
from evaluation.runs import results
from tests.helpers.folder import COLOURS, add, jpeg, settings

SAMPLES = 60


def scenes_folder(root: Path, scenes: ScenesConfig) -> None:
    """Write the files of `scenes` that are read here, without rendering images."""
    (root / "train").mkdir()
    with tarfile.open(root / "train" / "00000.tar", "w") as tar:
        for i in range(scenes.num_train):
            truth = {"captions": [f"caption {i}"], "popularity": (1 + i % 7) / 28}
            add(tar, f"s{i:07d}.jpg", jpeg(COLOURS[0]))
            add(tar, f"s{i:07d}.txt", f"caption {i}".encode())
            add(tar, f"s{i:07d}.json", json.dumps(truth).encode())
    (root / FINISHED).write_text(json.dumps({"format": FORMAT, **vars(scenes)}))


def finished_run(tmp_path: Path, sign: float, skew: float) -> Path:
    """Return a run whose checkpoint has zeta_text = sign * popularity; training never visited sample 0."""
    config = settings(tmp_path)
    config.data.name = config.data.source = "scenes"
    config.data.scenes.num_train, config.data.scenes.popularity_skew = SAMPLES, skew
    config.objective = {"nuclr": {}}
    scenes_folder(tmp_path, config.data.scenes)
    run = directory.claim(config)
    pairs = open_source(config.data)
    built = setup.build_components(config, torch.device("cpu"), len(pairs), pairs.fingerprint).state
    truth = popularity.true_popularity(config)
    values = torch.arange(float(SAMPLES)) if truth is None else truth.float()
    ids = torch.arange(SAMPLES)
    rows = built.table.read(ids)
    rows |= {"nuclr_zeta_text": sign * values, "nuclr_seen": (ids > 0).float()}
    built.table.write(ids, rows)
    built.save(run)
    return run


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_zeta_proportional_to_popularity_correlates_with_it(tmp_path: Path, sign: float) -> None:
    run = finished_run(tmp_path, sign, skew=1.0)
    text, image = popularity.evaluate(run, run)
    assert (text.metric, text.n, text.chance) == ("zeta_text_spearman", SAMPLES - 1, 0.0)
    assert text.value == pytest.approx(sign)
    assert image.metric == "zeta_image_spearman" and image.value == 0.0  # never updated
    assert popularity.evaluate(run, run) == results.read(run / "results.jsonl")  # a second call adds no rows
    assert "zeta_text_spearman" in (run / "results.csv").read_text()
    manifest = json.loads((checkpoint.resolve(run) / checkpoint.MANIFEST).read_text())
    assert text.hashes["checkpoint"] == manifest["sha256"][checkpoint.WEIGHTS][:16]  # as in the rows of tasks
    artifact = json.loads((run / "artifacts" / "popularity-scenes.json").read_text())
    assert artifact["curve"]["text"] == pytest.approx([sign * p for p in artifact["curve"]["popularity"]], abs=1e-6)
    most, least = artifact["captions"]["most"], artifact["captions"]["least"]
    assert most[0]["text"] >= most[-1]["text"] > least[-1]["text"] >= least[0]["text"]
    assert most[0]["text"] == pytest.approx(sign * most[0]["popularity"])
    assert report_mentions(run, tmp_path, str(most[0]["caption"]))


def report_mentions(run: Path, folder: Path, caption: str) -> bool:
    writer.write_report([run], folder / "report")
    page = (folder / "report" / "report.md").read_text()
    assert "rank correlation of ζ (texts) with popularity" in page
    return caption in page


def test_rows_of_another_checkpoint_are_kept(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 1.0, skew=1.0)
    rows = popularity.evaluate(run, run)
    others = [replace(row, hashes={**row.hashes, "checkpoint": "other"}) for row in rows]
    results.write(run / "results.jsonl", others)
    popularity.evaluate(run, run)
    assert results.read(run / "results.jsonl") == others + rows


def test_without_the_training_data_it_is_skipped_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(tmp_path)
    config.objective = {"nuclr": {}}
    run = directory.claim(config)
    setup.build_components(config, torch.device("cpu"), 8, "x").state.save(run)
    assert popularity.evaluate(run, run) == []
    assert "popularity skipped, training data missing" in capsys.readouterr().err


def test_without_true_popularity_there_are_captions_but_no_rows(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 1.0, skew=0.0)
    assert popularity.evaluate(run, run) == []
    artifact = json.loads((run / "artifacts" / "popularity-scenes.json").read_text())
    assert artifact["curve"] == {} and artifact["captions"]["most"][0]["text"] == SAMPLES - 1


def test_a_run_without_zeta_has_no_artifact(tmp_path: Path) -> None:
    config = settings(tmp_path)
    run = directory.claim(config)
    setup.build_components(config, torch.device("cpu"), 8, "x").state.save(run)
    assert popularity.evaluate(run, run) == []
    assert not (run / "artifacts").exists()


def test_spearman_with_ties_is_pearson_of_mean_ranks() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(9, (50,), generator=generator).float()
    b = a + 4 * torch.randn(50, generator=generator)
    ranks = [[sum(y < x for y in v) + (sum(y == x for y in v) - 1) / 2 for x in v] for v in (a.tolist(), b.tolist())]
    value, low, high = popularity.spearman_interval(a, b)
    assert value == pytest.approx(statistics.correlation(*ranks), abs=1e-12)
    assert low < value < high
