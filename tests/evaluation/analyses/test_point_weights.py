"""Weights of patches and words: those of the model, in their places, and drawn in the report."""

import json
from pathlib import Path

import pytest
import torch

from clipx.models import clip
from clipx.run import checkpoint, directory
from evaluation.analyses import point_weights
from evaluation.datasets.opening import open_dataset
from evaluation.embedding.encoder import from_checkpoint
from evaluation.report import writer
from tests.evaluation.test_point_sets import trained, untrained
from tests.helpers import fakes


@pytest.fixture
def run(tmp_path: Path) -> Path:
    config = untrained(tmp_path)
    fakes.captioned(tmp_path / "pairs")
    config.data.evaluation = ["captions:pairs"]
    return trained(config)


def test_the_artifact_holds_the_models_weights_in_their_places(run: Path) -> None:
    point_weights.evaluate(run, run)
    shown = json.loads((run / "artifacts" / "weights-test.json").read_text())["shown"]
    assert len(shown) == point_weights.SHOWN
    model = clip.build_model(directory.load_config(run)).eval()
    checkpoint.load_weights(model, checkpoint.resolve(run))
    encoder, _ = from_checkpoint(run, torch.device("cpu"))
    data = open_dataset(f"captions:{run.parent.parent.parent / 'pairs'}")
    with torch.no_grad():
        image = model.image(encoder.preprocess(data.images(data.splits[0])[0])[None])
        text = model.text(encoder.tokenize(data.texts(data.splits[0], "captions")[:1]))
    patches = torch.tensor(shown[0]["patches"])
    torch.testing.assert_close(patches.flatten(), image.weights[0, 1:])  # 36 patches after the class token
    assert patches.shape == (6, 6)
    values = torch.tensor([value for _, value in shown[0]["words"]])
    torch.testing.assert_close(values, text.weights[0, 1 : 1 + len(values)])
    caption = "".join(word for word, _ in shown[0]["words"])
    assert caption == data.texts(data.splits[0], "captions")[0].lower().replace(" ", "")


def test_the_report_draws_them(run: Path, tmp_path: Path) -> None:
    point_weights.evaluate(run, run)
    writer.write([run], tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.count("weights of the patches, largest") >= point_weights.SHOWN
    assert page.count("weights of the words") >= point_weights.SHOWN


def test_models_of_one_point_have_none(tmp_path: Path) -> None:
    config = untrained(tmp_path, "none")
    config.data.evaluation = ["captions:pairs"]
    plain = trained(config)
    point_weights.evaluate(plain, plain)
    assert not (plain / "artifacts").exists()
