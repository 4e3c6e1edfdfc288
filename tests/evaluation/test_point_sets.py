"""Evaluation of point sets: prototypes without normalisation, draws of random features, features before projection."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cli.eval import one
from clipx.config.evaluation import EvalConfig
from clipx.errors import UserError
from clipx.run.folder import RunFolder
from evaluation.claims.measures import ZEROSHOT
from evaluation.datasets.kinds import Labelled
from evaluation.embedding.encoder import from_checkpoint
from evaluation.embedding.features import Loading
from evaluation.report import writer
from evaluation.runner import evaluate as run_tasks
from evaluation.runs import results
from evaluation.runs.reader import read
from evaluation.tasks import TASKS
from evaluation.tasks.zeroshot import ZeroShot, ZeroShotDraws
from evaluation.types import Features, Settings
from tests.helpers import fakes
from tests.helpers.runs import prepared_point_sets, trained

CPU = torch.device("cpu")


def dataset(folder: Path, classes: int = 3, test: int = 30, prompts: str = "ensemble") -> Labelled:
    return fakes.opened(fakes.labelled(folder, classes=classes, test=test), Labelled, Settings(prompts))


@pytest.fixture(scope="module")
def point_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an untrained run with point sets."""
    return trained(prepared_point_sets(tmp_path_factory.mktemp("point_sets")))


def test_draws_differ_only_in_their_random_features(point_sets: Path) -> None:
    encoder, _ = from_checkpoint(point_sets, CPU)
    assert not encoder.cosine
    assert list(encoder.image_variants) == ["draw 1", "draw 2", "draw 3", "draw 4", "before projection"]
    assert list(encoder.text_variants) == ["draw 1", "draw 2", "draw 3", "draw 4"]
    assert "kernel=imq" in encoder.provenance["points"]
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    draw_0, draw_1, draw_2 = encoder.image(pixels), *(encoder.image_variants[f"draw {k}"](pixels) for k in (1, 2))
    assert draw_0.shape == (2, 128 + 512)  # linear part and random features
    torch.testing.assert_close(draw_0[:, :128], draw_1[:, :128])
    assert not torch.allclose(draw_0[:, 128:], draw_1[:, 128:])
    assert not torch.allclose(draw_1[:, 128:], draw_2[:, 128:])
    torch.testing.assert_close(encoder.image_variants["draw 1"](pixels.flip(0)), draw_1.flip(0))
    assert encoder.image_variants["before projection"](pixels).shape == (2, 64)


def test_models_without_random_features_have_no_draws(tmp_path: Path) -> None:
    plain, _ = from_checkpoint(trained(prepared_point_sets(tmp_path, "none")), CPU)
    assert plain.cosine and list(plain.image_variants) == ["before projection"]
    assert not {"points", "similarity"} & plain.provenance.keys()  # so that older cached embeddings stay valid
    linear, _ = from_checkpoint(trained(prepared_point_sets(tmp_path, "linear")), CPU)
    assert not linear.cosine and list(linear.image_variants) == ["before projection"]


def test_the_length_of_prototypes_decides_for_point_sets_but_not_for_cosine_similarity(tmp_path: Path) -> None:
    data, task = dataset(tmp_path, classes=2, test=10), ZeroShot()
    images, prompts = task.requests(data)
    # The prototype of class 1 is three times as long as that of class 0, but points slightly away from the images.
    text = torch.tensor([[1.0, 0.0], [1.0, 0.0], [3.0, 0.1], [3.0, 0.1]])
    features: Features = {images: torch.tensor([[1.0, 0.0]]).expand(10, 2), prompts: text}
    share = float((data.labels("test") == 1).double().mean())
    assert task.score(data, features, cosine=False).results[0].value == pytest.approx(share)
    assert task.score(data, features, cosine=True).results[0].value == pytest.approx(1 - share)


def test_zeroshot_draws_reports_deviation_and_means_over_five_draws(tmp_path: Path) -> None:
    data, task = dataset(tmp_path), ZeroShotDraws()
    requests, label = task.requests(data), data.labels("test")
    assert len(requests) == 10

    def embeddings(wrong: int) -> tuple[Tensor, Tensor]:
        """Return embeddings of images and prompts for which the first `wrong` images are misclassified."""
        text = torch.eye(3).repeat_interleave(2, dim=0)
        image = torch.eye(3)[label]
        image[:wrong] = torch.eye(3)[(label[:wrong] + 1) % 3]
        return image, text

    features: Features = {}
    for draw in range(5):
        features[requests[2 * draw]], features[requests[2 * draw + 1]] = embeddings(3 * draw)
    score = task.score(data, features, cosine=False)
    deviation, top1, per_class = score.results
    accuracies = torch.tensor([1 - 3 * k / 30 for k in range(5)], dtype=torch.float64)
    assert [top1.metric, per_class.metric] == ["top1_mean_over_draws", "mean_per_class_mean_over_draws"]
    assert top1.value == pytest.approx(float(accuracies.mean()))
    by_class = [
        float(torch.tensor([(label[wrong:] == c).sum() / (label == c).sum() for c in range(3)]).mean())
        for wrong in (0, 3, 6, 9, 12)
    ]
    assert per_class.value == pytest.approx(sum(by_class) / 5, abs=1e-6)
    assert score.artifact is not None and score.artifact["top1"] == pytest.approx(accuracies.tolist())
    assert score.artifact["mean_per_class"] == pytest.approx(by_class, abs=1e-6)
    assert top1.low < top1.value < top1.high and top1.chance == pytest.approx(1 / 3)
    assert deviation.metric == "top1_spread_over_draws" and not deviation.higher_is_better
    assert deviation.value == pytest.approx(float(accuracies.std()))
    assert 0 < deviation.low < deviation.value < deviation.high
    for request in requests:  # equal draws
        features[request] = features[requests[0 if request.view == "images" else 1]]
    assert task.score(data, features, cosine=False).results[0].value == 0
    simple = dataset(tmp_path, prompts="simple")
    of_simple = {request: features[requests[i % 2]] for i, request in enumerate(task.requests(simple))}
    assert {row.split for row in task.score(simple, of_simple, cosine=False).results} == {"test, prompts simple"}


def test_the_probe_before_the_projection_has_its_own_task_and_metric(point_sets: Path, tmp_path: Path) -> None:
    encoder, _ = from_checkpoint(point_sets, CPU)
    spec = fakes.labelled(tmp_path / "things", train=24)
    rows = run_tasks(encoder, [spec], [], tmp_path / "out", Loading(8, 0, "cpu", tmp_path / "cache"))
    metrics = {(row.task, row.metric) for row in rows}
    assert {task for task, _ in metrics} == {
        name for name, task in TASKS.items() if task.kind == "labelled" and not task.on_request
    }
    assert ("linear_probe_before_projection", "top1_before_projection") in metrics
    assert ("zeroshot_draws", "top1_spread_over_draws") in metrics
    again = run_tasks(encoder, [spec], [], tmp_path / "out", Loading(8, 0, "cpu", tmp_path / "cache"))
    assert again == rows


def test_a_task_whose_features_the_model_lacks_is_refused_alone_and_skipped_beside_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, need = fakes.labelled(tmp_path / "things"), "tasks=zeroshot_draws needs a model with features draw 1"

    def evaluated(*tasks: str) -> set[str]:
        rows = run_tasks(fakes.encoder(), [spec], [*tasks], tmp_path / "out", Loading(8, 0, "cpu", tmp_path / "cache"))
        return {row.task for row in rows}

    with pytest.raises(UserError, match=need):
        evaluated("zeroshot_draws")
    assert evaluated("zeroshot_draws", "zeroshot") == {"zeroshot"}
    assert f"skipped: {need}" in capsys.readouterr().out


def test_the_number_of_random_features_can_be_set_for_an_evaluation(point_sets: Path) -> None:
    images = torch.rand(2, 3, 32, 32)
    own, fewer = (from_checkpoint(point_sets, CPU, features_eval=count)[0] for count in (None, 8))
    assert fewer.image(images).shape[1] < own.image(images).shape[1]
    assert fewer.provenance["points"] != own.provenance["points"], "else cached embeddings would be mixed up"


def test_a_diverged_run_has_a_nan_row_and_can_be_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(prepared_point_sets(tmp_path))
    divergence = RunFolder(run).record_divergence(step=7, bad_steps=3)
    for _ in range(2):  # the second call adds no row
        one.evaluate(EvalConfig(checkpoint=str(run), datasets=[fakes.labelled(tmp_path / "things")]))
        assert "diverged at step 7" in capsys.readouterr().err
    (row,) = results.read(run / "results.jsonl")
    assert (row.task, row.metric, row.n) == ("train", "loss", 7 * 8)
    assert math.isnan(row.value) and "diverged at step 7" in row.model
    assert ZEROSHOT.read(read(run)) == {}
    assert divergence.checkpoint is not None
    last = str(run / divergence.checkpoint)  # the last good checkpoint can still be scored by its path
    one.evaluate(EvalConfig(checkpoint=last, tasks=["zeroshot"], datasets=[fakes.labelled(tmp_path / "things")]))
    assert {row.task for row in results.read(run / "results.jsonl")} == {"train"}
    scored = results.read(run / "intermediate" / Path(last).name / "results.jsonl")
    assert {row.task for row in scored} == {"zeroshot"}
    writer.write_report([run], tmp_path / "report")
