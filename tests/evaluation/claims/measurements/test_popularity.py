"""Learned popularity: correlations of zeta and the true popularity, captions, stored rows; optimum by eq. (6)."""

import json
import math
import shutil
import statistics
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from clipx.config.schema import ScenesConfig, TemperatureConfig
from clipx.data.scenes.folder import FINISHED, FORMAT
from clipx.data.sources.opening import open_pair_source, open_source
from clipx.errors import UserError
from clipx.run import checkpoint
from clipx.run.folder import RunFolder
from clipx.theory.paper3 import fixed_point
from clipx.training import setup
from evaluation.claims.measurements import popularity
from evaluation.claims.measurements.popularity import final_tau, optimal_zeta
from evaluation.embedding import encoder
from evaluation.embedding.features import Loading
from evaluation.report import writer
from evaluation.runs import results
from evaluation.types import Result
from tests.helpers.folder import COLOURS, add, jpeg, settings
from tests.helpers.pairs import random_pairs

SAMPLES = 60
LOADING = Loading(batch_size=32, workers=0, device="cpu")


def scenes_folder(root: Path, scenes: ScenesConfig) -> None:
    """Write a folder like that of rendered `scenes`, with images of one colour each."""
    (root / "train").mkdir()
    with tarfile.open(root / "train" / "00000.tar", "w") as tar:
        for i in range(scenes.num_train):
            truth = {"captions": [f"caption {i}"], "popularity": (1 + i % 7) / 28}
            add(tar, f"s{i:07d}.jpg", jpeg(COLOURS[i % len(COLOURS)], 48 + i))
            add(tar, f"s{i:07d}.txt", f"caption {i}".encode())
            add(tar, f"s{i:07d}.json", json.dumps(truth).encode())
    (root / FINISHED).write_text(json.dumps({"format": FORMAT, **vars(scenes)}))


def measured(run: Path, force: bool = False) -> list[Result]:
    model, _ = encoder.from_checkpoint(run, torch.device("cpu"))
    return popularity.evaluate(run, run, model, replace(LOADING, cache_dir=run / "cache"), force)


def by_metric(rows: list[Result]) -> dict[str, Result]:
    assert len({row.metric for row in rows}) == len(rows)
    return {row.metric: row for row in rows}


def finished_run(tmp_path: Path, sign: float, skew: float) -> Path:
    """Return a run with zeta_text = sign * popularity, or sign * id if skew is 0; training never visited sample 0."""
    config = settings(tmp_path, text="small:clip_bag")
    config.model.image.name = "small:conv"
    config.data.name = config.data.source = "scenes"
    config.data.scenes.num_train, config.data.scenes.popularity_skew = SAMPLES, skew
    config.objective = {"nuclr": {}}
    scenes_folder(tmp_path, config.data.scenes)
    run = RunFolder.create(config).path
    pairs = open_source(config.data)
    built = setup.build_components(config, torch.device("cpu"), len(pairs), pairs.fingerprint).state
    truth = popularity.true_popularity(config)
    values = torch.arange(float(SAMPLES)) if truth is None else truth.float()
    ids = torch.arange(SAMPLES)
    rows = built.table.read(ids) | {"nuclr_seen": (ids > 0).float(), "nuclr_zeta_text": sign * values}
    built.table.write(ids, rows)
    built.save(run)
    return run


def write_zeta(run: Path, zeta: dict[str, Tensor], seen: Tensor) -> None:
    """Replace the zeta of the samples `seen` in the checkpoint of the run."""
    folder = checkpoint.resolve(run)
    columns = load_file(folder / checkpoint.TABLE)
    for side, values in zeta.items():
        columns[f"nuclr_zeta_{side}"][seen] = values
    save_file(columns, folder / checkpoint.TABLE)
    manifest = json.loads((folder / checkpoint.MANIFEST).read_text())
    manifest["sha256"][checkpoint.TABLE] = checkpoint.file_sha256(folder / checkpoint.TABLE)
    (folder / checkpoint.MANIFEST).write_text(json.dumps(manifest))


def test_zeta_inverse_to_popularity_correlates_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(popularity, "MAX_PAIRS", 20)
    run = finished_run(tmp_path, -1.0, skew=1.0)
    rows = by_metric(measured(run))
    text = rows["zeta_text_spearman"]
    assert (text.n, text.chance) == (SAMPLES - 1, 0.0)
    assert rows["zeta_text_sinkhorn_spearman"].n == rows["sinkhorn_text_spearman"].n == 20
    assert text.value == pytest.approx(-1)
    assert rows["zeta_image_spearman"].value == 0.0  # never updated
    assert measured(run) == results.read(run / "results.jsonl")  # a second call adds no rows
    assert "zeta_text_spearman" in (run / "results.csv").read_text()
    manifest = json.loads((checkpoint.resolve(run) / checkpoint.MANIFEST).read_text())
    assert text.hashes["checkpoint"] == manifest["sha256"][checkpoint.WEIGHTS][:16]  # as in the rows of tasks
    artifact = json.loads((run / "artifacts" / "popularity-scenes.json").read_text())
    assert artifact["curve"]["text"] == pytest.approx([-p for p in artifact["curve"]["popularity"]], abs=1e-6)
    most, least = artifact["captions"]["most"], artifact["captions"]["least"]
    assert most[0]["text"] >= most[-1]["text"] > least[-1]["text"] >= least[0]["text"]
    assert most[0]["text"] == pytest.approx(-most[0]["popularity"])
    writer.write_report([run], tmp_path / "report")
    page = (tmp_path / "report" / "report.md").read_text()
    assert "rank correlation of ζ (texts) with popularity" in page and str(most[0]["caption"]) in page
    monkeypatch.setattr(popularity, "RESAMPLES", 20)  # gives other intervals
    assert by_metric(measured(run)) == rows
    assert by_metric(measured(run, force=True)) != rows


def test_zeta_equal_to_the_optimum_is_perfectly_correlated(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 1.0, skew=1.0)
    seen = torch.arange(1, SAMPLES)
    model, _ = encoder.from_checkpoint(run, torch.device("cpu"))
    pairs = open_pair_source(RunFolder(run).load_config().data)
    features = popularity.training_features(model, pairs, seen.tolist(), replace(LOADING, cache_dir=tmp_path / "cache"))
    optimum = popularity.optimal_zeta(*features, tau=0.07)
    write_zeta(run, {side: zeta.float() for side, zeta in optimum.items()}, seen)
    rows = by_metric(measured(run))
    for side in ("text", "image"):
        assert rows[f"zeta_{side}_sinkhorn_spearman"].value == pytest.approx(1, abs=1e-3)
        popular = rows[f"sinkhorn_{side}_spearman"].value
        assert popular == pytest.approx(rows[f"zeta_{side}_spearman"].value, abs=0.01)


def test_damaged_missing_or_other_training_data_give_a_note_and_no_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """zeta belongs to the samples of the training by their numbers; a smaller set has no sample with some of these."""
    run = finished_run(tmp_path, 1.0, skew=1.0)
    shard, marker = tmp_path / "train" / "00000.tar", tmp_path / FINISHED
    settings_of_data = marker.read_text()
    shard.write_bytes(shard.read_bytes().replace(b"\xff\xd8\xff", b"\x00\x00\x00"))
    assert measured(run) == []
    assert "popularity skipped: " in capsys.readouterr().err
    shutil.rmtree(tmp_path / "train")
    assert measured(run) == []
    assert "popularity skipped: " in capsys.readouterr().err
    scenes_folder(tmp_path, ScenesConfig(num_train=SAMPLES // 2))
    marker.write_text(settings_of_data)
    assert measured(run) == []
    assert "skipped: trained on other data (fingerprint 60:" in capsys.readouterr().err


def test_without_true_popularity_zeta_is_compared_with_the_optimum_only(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 1.0, skew=0.0)
    assert set(by_metric(measured(run))) == {"zeta_text_sinkhorn_spearman", "zeta_image_sinkhorn_spearman"}
    artifact = json.loads((run / "artifacts" / "popularity-scenes.json").read_text())
    assert artifact["curve"] == {} and artifact["captions"]["most"][0]["text"] == SAMPLES - 1


def test_spearman_with_ties_is_pearson_of_mean_ranks() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(9, (50,), generator=generator).float()
    b = a + 4 * torch.randn(50, generator=generator)
    ranks = [[sum(y < x for y in v) + (sum(y == x for y in v) - 1) / 2 for x in v] for v in (a.tolist(), b.tolist())]
    value, low, high = popularity.spearman_interval(a, b)
    assert value == pytest.approx(statistics.correlation(*ranks), abs=1e-12)
    assert low < value < high


def two_concepts() -> tuple[Tensor, Tensor]:
    """Return features of 24 and 8 pairs of two concepts that hardly overlap."""
    centre = torch.eye(6, dtype=torch.float64)[:2].repeat_interleave(torch.tensor((24, 8)), dim=0)
    noise = 0.1 * torch.randn(2, 32, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    image, text = F.normalize(centre + noise, dim=-1)
    return image, text


@pytest.mark.parametrize(
    ("features", "tau"), [*((random_pairs(7, 4, seed=3), tau) for tau in (0.05, 1.0)), (two_concepts(), 0.1)]
)
def test_both_sides_solve_equation_6(features: tuple[Tensor, Tensor], tau: float) -> None:
    image, text = features
    n, zeta = len(image), optimal_zeta(image, text, tau)
    e = (image @ text.T).tolist()
    for side in ("text", "image"):
        z = zeta[side].tolist()
        s = e if side == "text" else [list(column) for column in zip(*e, strict=True)]  # anchors in the rows
        inner = [sum(math.exp((s[i][k] - z[k]) / tau) for k in range(n)) for i in range(n)]
        right = [tau * math.log(sum(math.exp(s[i][j] / tau) / inner[i] for i in range(n))) for j in range(n)]
        offsets = [left - value for left, value in zip(z, right, strict=True)]
        assert max(offsets) - min(offsets) < 1e-9


def test_the_optimum_is_found_where_sinkhorns_iteration_has_not_converged() -> None:
    image, text = two_concepts()
    few = torch.from_numpy(0.1 * np.log(fixed_point(np.exp((image @ text.T).numpy() / 0.1), 300)[0]))
    difference = optimal_zeta(image, text, 0.1)["text"] - few  # each is determined up to a constant
    assert float(difference.max() - difference.min()) > 0.02


def test_an_optimum_that_float64_does_not_determine_is_refused() -> None:
    """Two concepts with no overlap: adding a constant to the zeta of one of them changes nothing."""
    image = torch.eye(2).repeat_interleave(4, dim=0)
    with pytest.raises(UserError, match=r"the optimal zeta is not determined at tau=0.005"):
        optimal_zeta(image, image, 0.005)


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (TemperatureConfig(kind="learned", tau=0.05), 0.04),
        (TemperatureConfig(kind="linear", tau=0.01, tau_end=0.05), 0.05),
    ],
)
def test_final_tau_is_that_of_the_checkpoint(tmp_path: Path, temperature: TemperatureConfig, expected: float) -> None:
    config = settings(tmp_path)
    config.model.image.name, config.temperature = "small:conv", temperature
    run = RunFolder.create(config).path
    components = setup.build_components(config, torch.device("cpu"), 16, "16:x")  # 2 epochs of 2 steps
    components.state.step = 4
    for name, parameter in components.state.model.named_parameters():
        if name == "temperature.nu":
            parameter.data.fill_(math.log(1 / 0.04))
    folder = components.state.save(run)
    assert final_tau(config, folder) == pytest.approx(expected, rel=1e-5)
    components.state.step = 1
    early = final_tau(config, components.state.save(run))
    assert early == pytest.approx(temperature.tau if temperature.kind == "linear" else expected, rel=1e-5)
