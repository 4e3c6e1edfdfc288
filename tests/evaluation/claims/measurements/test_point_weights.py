"""Point weights: the stored weights are those of the model, token by token, and the report shows them."""

import json
from pathlib import Path

import pytest
import torch

from clipx.models import clip
from clipx.run import checkpoint
from clipx.run.folder import RunFolder
from evaluation.claims.measurements import point_weights
from evaluation.datasets.opening import open_dataset
from evaluation.embedding.encoder import from_checkpoint
from evaluation.report import writer
from tests.helpers import fakes
from tests.helpers.runs import prepared_point_sets, trained


def test_the_artifact_holds_the_models_weights_in_order_and_the_report_draws_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = prepared_point_sets(tmp_path)
    config.model.text.name = "open_clip:mini-vit-48"  # with start and end tokens
    spec = fakes.captioned(tmp_path / "pairs")
    config.data.evaluation = ["captions:pairs"]
    run = trained(config)
    point_weights.evaluate(run, run)
    examples = json.loads((run / "artifacts" / "weights-test.json").read_text())["shown"]
    assert len(examples) == point_weights.MAX_PAIRS
    model = clip.build_model(RunFolder(run).load_config()).eval()
    checkpoint.load_weights(model, checkpoint.resolve(run))
    encoder, _ = from_checkpoint(run, torch.device("cpu"))
    data = open_dataset(spec)
    with torch.no_grad():
        image = model.image(encoder.preprocess(data.images(data.splits[0])[0])[None])
        text = model.text(encoder.tokenize(data.texts(data.splits[0], "captions")[:1]))
    patches = torch.tensor(examples[0]["patches"])
    torch.testing.assert_close(patches.flatten(), image.weights[0, 1:])  # 36 patches after the class token
    assert patches.shape == (6, 6)
    values = torch.tensor([value for _, value in examples[0]["words"]])
    torch.testing.assert_close(values, text.weights[0, 1 : 1 + len(values)])
    caption = "".join(word for word, _ in examples[0]["words"])
    assert caption == data.texts(data.splits[0], "captions")[0].lower().replace(" ", "")
    (tmp_path / "pairs").rename(tmp_path / "moved")
    point_weights.evaluate(run, tmp_path / "other")
    assert "point weights skipped, evaluation data missing or damaged: " in capsys.readouterr().err
    writer.write_report([run], tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.count("patch weights, largest") >= point_weights.MAX_PAIRS
    assert page.count("word weights") >= point_weights.MAX_PAIRS
