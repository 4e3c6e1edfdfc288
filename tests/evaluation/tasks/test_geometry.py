"""Geometry task: choice of pairs, batches of margins, intervals, and data for the figures."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.data.preprocess import tokenizer
from clipx.data.sources.opening import open_pair_source
from clipx.models import clip
from clipx.training import geometry_probe
from clipx.types import Progress
from evaluation import geometry
from evaluation.datasets.kinds import Captioned
from evaluation.tasks.geometry import (
    BATCH,
    METRICS,
    PAIRS,
    Geometry,
    batched_margins,
    histogram,
    paired,
    principal_components,
    standard_error,
)
from evaluation.types import Result
from tests.helpers import fakes
from tests.helpers.runs import prepared


def captioned(folder: Path, images: int) -> Captioned:
    return fakes.opened(fakes.captioned(folder, (1,) * images), Captioned)


def by_metric(data: Captioned, image: Tensor, text: Tensor) -> dict[str, Result]:
    return {row.metric: row for row in fakes.scored(Geometry(), data, image, text).results}


def test_each_captioned_image_gets_one_of_its_own_captions() -> None:
    counts = torch.tensor([2, 0, 5, 1])
    image_of_text = torch.arange(4).repeat_interleave(counts)[torch.tensor([3, 1, 0, 6, 7, 2, 5, 4])]
    image, text = paired(torch.arange(4.0)[:, None], image_of_text[:, None].float(), image_of_text)
    assert sorted(image[:, 0].tolist()) == [0, 2, 3]
    assert torch.equal(image, text)


def test_rows_equal_the_metrics_of_the_drawn_pairs_and_are_in_their_intervals(tmp_path: Path) -> None:
    n = 640
    shift = torch.zeros(fakes.WIDTH)
    shift[0] = 0.5
    base = fakes.embeddings(n, 0)
    image, text = F.normalize(base + shift, dim=1), F.normalize(base - shift + 0.8 * fakes.embeddings(n, 1), dim=1)
    rows = by_metric(captioned(tmp_path, n), image, text)
    image, text = paired(image, text, torch.arange(n))
    few = image[:PAIRS], text[:PAIRS]
    assert rows["gap"].value == pytest.approx(geometry.modality_gap(*few))
    assert rows["uniformity"].value == pytest.approx(geometry.uniformity(*few))
    assert rows["alignment"].value == pytest.approx(geometry.alignment(*few))
    batches = [slice(s, s + BATCH) for s in range(0, n, BATCH)]
    expected = torch.cat([geometry.margins(image[b], text[b]) for b in batches])
    assert rows["margin_mean"].value == pytest.approx(float(expected.mean()))
    assert rows["margin_positive"].value == pytest.approx(float((expected > 0).double().mean()))
    for row in rows.values():
        assert row.low < row.value < row.high
    assert (rows["gap"].n, rows["margin_mean"].n) == (PAIRS, 10 * 2 * BATCH * (BATCH - 1))
    assert rows["margin_q25"].value < rows["margin_q50"].value < rows["margin_q95"].value


@torch.no_grad()
def test_unnormalised_embeddings_have_the_geometry_that_training_logged(tmp_path: Path) -> None:
    config = prepared(tmp_path, samples=20)
    config.model.normalise = "never"
    config.log.geometry_every, config.log.geometry_on = 1, "train"
    model = clip.build_model(config)
    tokenize = tokenizer.build_tokenizer(model.inputs)
    probe = geometry_probe.GeometryProbe(config, open_pair_source(config.data), tokenize, model)
    model.eval()
    image, text = model.encode_image(probe.images), model.encode_text(probe.texts)
    assert not torch.allclose(image.norm(dim=1), torch.ones(20), rtol=0.01)
    rows = by_metric(captioned(tmp_path / "captions", 20), image, text)
    logged = probe.measure(Progress(step=0, total_steps=1, epoch=0, total_epochs=1))
    both = METRICS.keys() & logged.keys()
    assert both == {"gap", "uniformity", "alignment"}
    assert {metric: rows[metric].value for metric in both} == pytest.approx({m: logged[m] for m in both}, rel=1e-4)


def test_the_standard_error_matches_the_deviation_over_independent_samples() -> None:
    shift = torch.zeros(fakes.WIDTH)
    shift[0] = 0.5
    image = F.normalize(fakes.embeddings(4096, 0) + shift, dim=1)
    text = F.normalize(fakes.embeddings(4096, 1) - 4 * shift, dim=1)  # another shape than the images, too
    for measure in METRICS.values():
        deviation = torch.tensor([measure(image[s : s + 256], text[s : s + 256]) for s in range(0, 4096, 256)]).std()
        error = standard_error(measure, image[:256], text[:256])
        assert 0.5 < error / float(deviation) < 2.0


def test_an_incomplete_batch_is_dropped_and_few_pairs_are_split_into_two_batches() -> None:
    shapes = {200: (3, 2 * 64 * 63), 128: (2, 2 * 64 * 63), 11: (2, 40), 3: (1, 4), 2: (1, 4), 1: (0, 0)}
    found = {n: batched_margins(fakes.embeddings(n, 0), fakes.embeddings(n, 1)).shape for n in shapes}
    assert found == shapes


def test_the_histogram_counts_every_margin_in_the_right_bin() -> None:
    found = histogram(torch.tensor([[-1.5, -0.999, 0.011], [0.02 + 1e-9, 1.999, 2.0]], dtype=torch.float64))
    counts = {number: count for number, count in enumerate(found["counts"]) if count}
    assert counts == {0: 2, 50: 1, 51: 1, 149: 2}


def test_separated_modalities_are_apart_on_the_first_component() -> None:
    shift = torch.zeros(fakes.WIDTH)
    shift[3] = 1.0
    found = principal_components(fakes.embeddings(200, 0) + shift, fakes.embeddings(200, 1) - shift)
    assert min(x for x, _ in found["image"]) > max(x for x, _ in found["text"])
    assert len(found["image"]) == 100
