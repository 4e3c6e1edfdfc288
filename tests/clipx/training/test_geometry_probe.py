"""Geometry during training: measured on fixed pairs, held-out ones by default, without any effect on the run."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clipx.config.schema import DataConfig, RunConfig
from clipx.data.preprocess import tokenizer
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from clipx.geometry import modality_gap
from clipx.models import clip
from clipx.run.folder import RunFolder
from clipx.train import build_sampler, fit
from clipx.training import geometry_probe
from tests.helpers.annotation_files import write_coco
from tests.helpers.pairs import START
from tests.helpers.runs import log, prepared, trained, weights


def probed_config(root: Path, samples: int = 16) -> RunConfig:
    config = prepared(root, samples)
    config.model.image.name, config.data.held_out = "small:conv", 0.25
    config.log.geometry_every = 3
    return config


def probe_of(config: RunConfig) -> tuple[geometry_probe.GeometryProbe, clip.ClipModel]:
    model = clip.build_model(config)
    tokenize = tokenizer.build_tokenizer(model.inputs)
    return geometry_probe.GeometryProbe(config, open_pair_source(config.data), tokenize, model), model


def rows_and_weights(config: RunConfig) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    run = trained(config)
    return log(run), weights(run)


def test_geometry_is_logged_at_step_0_and_every_n_steps_and_does_not_change_the_weights(tmp_path: Path) -> None:
    config = probed_config(tmp_path, samples=43)  # 32 for training: 4 steps per epoch
    rows, weights = rows_and_weights(config)
    assert [row["step"] for row in rows if "geometry" in row] == [0, 3, 6]
    assert list(rows[0]["geometry"]) == ["gap", "uniformity", "alignment", "margin_mean", "margin_positive", "loss"]
    assert rows[0]["geometry"] != rows[1]["geometry"]
    unprobed = probed_config(tmp_path)
    unprobed.name, unprobed.log.geometry_every = "unprobed", 0
    _, expected = rows_and_weights(unprobed)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_geometry_is_measured_on_the_held_out_pairs(tmp_path: Path) -> None:
    probe, model = probe_of(probed_config(tmp_path))
    model.eval()
    with torch.no_grad():
        image, text = model.encode_image(probe.images), model.encode_text(probe.texts)
    assert len(image) == 4
    assert probe(3, START, nullcontext)["gap"] == pytest.approx(modality_gap(image, text), rel=1e-5)
    assert probe(4, START, nullcontext) == {}


def test_a_measurement_embeds_no_more_pairs_at_once_than_a_step(tmp_path: Path) -> None:
    config = probed_config(tmp_path)
    config.train.batch_size, config.train.accumulation = 12, 4
    (probe, model), sizes = probe_of(config), list[int]()
    model.image.register_forward_pre_hook(lambda tower, images: sizes.append(len(images[0])))
    probe.measure(START)
    assert sizes == [3, 1]


def test_images_with_held_out_captions_are_not_trained_on(tmp_path: Path) -> None:
    """The data set has six images with three captions each, and each caption is a sample."""
    write_coco(tmp_path)
    config = probed_config(tmp_path)
    config.data = DataConfig(name="c", source="coco", root=str(tmp_path), split="train2014", captions="each")
    config.data.annotations, config.data.held_out = "annotations/captions_train2014.json", 0.4
    pairs = open_pair_source(config.data)
    trained_on = {pairs.where(i) for batch in build_sampler(config, pairs).batches(0) for _, i in batch}
    held_out_ids = geometry_probe.probe_ids(config, pairs)
    # 40% are 7 samples: two whole images, and one sample that is dropped, because its image is also trained on
    assert len(held_out_ids) == 6
    assert not trained_on & {pairs.where(i) for i in held_out_ids}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "shards",
            r"log.geometry_every=3 needs pairs that are not trained on, and data.held_out=0.0 gives none: set it",
        ),
        ("webdataset", r"log.geometry_every=3 needs random access to the data, which data.source=webdataset does not"),
    ],
)
def test_a_probe_without_pairs_or_of_a_stream_is_refused_at_the_start(
    tmp_path: Path, source: str, message: str
) -> None:
    config = probed_config(tmp_path)
    config.data.source, config.data.num_samples, config.data.held_out = source, 16, 0.0
    with pytest.raises(UserError, match=message):
        rows_and_weights(config)
    assert not (Path(config.runs) / "test" / "s0" / "log.jsonl").exists()


def test_a_run_of_zero_steps_saves_the_untrained_model_and_logs_its_geometry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clipx.data.loading.loader.open_pixels", lambda *_: pytest.fail("decodes all images"))
    config = probed_config(tmp_path)
    config.data.cache = "memory"
    config.train.epochs, config.train.samples = None, 0
    rows, weights = rows_and_weights(config)
    assert [row["step"] for row in rows] == [0]
    torch.manual_seed(config.seed)
    initial = clip.build_model(config).state_dict()
    assert all(torch.equal(weights[name], initial[name]) for name in weights)
    fit(config, RunFolder.of(config).path)  # a second call finds the run finished
    assert log(RunFolder.of(config).path) == rows
