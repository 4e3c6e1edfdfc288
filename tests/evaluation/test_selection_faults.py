"""Faults 8 and 9 of the list in test_field_faults.py: hyperparameters or checkpoints selected on the test split."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clipx.models import clip
from clipx.run import checkpoint
from clipx.run.folder import RunFolder
from clipx.run.saving import TrainState
from evaluation.datasets.kinds import Labelled
from evaluation.datasets.named import NAMED, Classes
from evaluation.datasets.opening import open_dataset
from evaluation.embedding.encoder import from_checkpoint
from evaluation.runs import groups, results
from evaluation.runs import reader as report_runs
from evaluation.tasks.linear_probe import LinearProbe, Regression, search
from evaluation.types import DEFAULTS, Encoder, Features, Result
from tests.helpers import fakes, replicas
from tests.helpers.folder import settings

# 8. The linear probe's C is tuned on the test split.


def probe_of_ours(data: Labelled, features: Features) -> float:
    artifact = LinearProbe().score(data, features).artifact
    assert artifact is not None
    return float(artifact["chosen_C"])


def probe_tuned_on_test(data: Labelled, features: Features) -> float:
    train, test = (features[request] for request in LinearProbe().requests(data))
    found = search(Regression(train, data.labels("train"), len(data.classnames)), test, data.labels("test"))
    return float(found.chosen)


def check_blind_to_test(probe: Callable[[Labelled, Features], float], folder: Path) -> None:
    data = open_dataset(fakes.labelled(folder, classes=3, train=60, test=60))
    assert isinstance(data, Labelled)
    features = {
        request: fakes.embeddings(60, seed, dim=8) + torch.eye(3, 8)[data.labels(request.split)]
        for seed, request in enumerate(LinearProbe().requests(data))
    }
    honest = probe(data, features)
    with_wrong_test = {request: x.flip(0) if request.split == "test" else x for request, x in features.items()}
    assert probe(data, with_wrong_test) == honest


def test_the_choice_of_c_is_blind_to_the_test_split(tmp_path: Path) -> None:
    check_blind_to_test(probe_of_ours, tmp_path / "ours")
    with pytest.raises(AssertionError):
        check_blind_to_test(probe_tuned_on_test, tmp_path / "faulty")


# 9. A checkpoint is selected on the validation set that is reported.


def evaluated_twice(root: Path) -> Path:
    """Return a run with two checkpoints, of which the first scored better on the reported set."""
    config = settings(root)
    run = RunFolder.create(config).path
    model = clip.build_model(config)
    rows = []
    for step, value in ((10, 0.9), (20, 0.8)):
        torch.nn.init.constant_(next(model.image.parameters()), step)
        kept = TrainState(model, torch.optim.SGD(model.parameters()), "data", step=step).save(run)
        hashes = {"checkpoint": checkpoint.verify(kept)["sha256"][checkpoint.WEIGHTS][:16]}
        rows.append(Result("zeroshot", "s", "test", "top1", value, 10, 0, 1, 0.1, True, 0, "test", hashes))
    results.write(run / "results.jsonl", rows)
    return run


def check_selection(opened: Callable[[Path], Encoder], run: Path) -> None:
    """Assert that the last checkpoint is evaluated, whatever the earlier scores on the reported set are."""
    last = results.read(run / "results.jsonl")[-1]
    assert opened(run).provenance["checkpoint"] == last.hashes["checkpoint"]


def opened_by_us(run: Path) -> Encoder:
    return from_checkpoint(run, torch.device("cpu"))[0]


def best_on_the_reported_set(run: Path) -> Encoder:
    best = max(results.read(run / "results.jsonl"), key=lambda row: row.value).hashes["checkpoint"]
    return next(
        encoder for path in checkpoint.checkpoints(run) if best in (encoder := opened_by_us(path)).provenance.values()
    )


def test_the_checkpoint_is_not_chosen_by_the_reported_score(tmp_path: Path) -> None:
    run = evaluated_twice(tmp_path)
    check_selection(opened_by_us, run)
    with pytest.raises(AssertionError):
        check_selection(best_on_the_reported_set, run)


def check_reported_row(reported: Callable[[Path], float], run: Path) -> None:
    """Assert that the report shows the last of several evaluations of a run."""
    assert reported(run) == 0.8


def reported_by_us(run: Path) -> float:
    (summary,) = groups.summarise_metrics(groups.group_runs([report_runs.read(run)]))
    return summary.row.value


def best_row(run: Path) -> float:
    return max(row.value for row in results.read(run / "results.jsonl"))


def test_the_report_does_not_show_the_best_of_several_evaluations(tmp_path: Path) -> None:
    run = evaluated_twice(tmp_path)
    check_reported_row(reported_by_us, run)
    with pytest.raises(AssertionError):
        check_reported_row(best_row, run)


def check_disjoint(known: Classes, root: Path) -> None:
    """Assert that the splits that serve to fit or to choose C have no image of the test split."""
    data = known.open("imagenet", f"imagenet:{root}", root, DEFAULTS)
    paths = {split: set(data.images(split).paths) for split in data.splits}  # type: ignore[attr-defined]
    assert paths["test"] and len(paths) > 1
    assert all(not paths["test"] & found for split, found in paths.items() if split != "test")


def test_imagenets_validation_images_are_used_for_the_test_only(tmp_path: Path) -> None:
    replicas.imagenet(tmp_path)
    imagenet = NAMED["imagenet"]
    assert isinstance(imagenet, Classes)
    check_disjoint(imagenet, tmp_path)
    with pytest.raises(AssertionError):
        check_disjoint(replace(imagenet, own_names={"train": "val", "test": "val"}), tmp_path)
    with pytest.raises(AssertionError):
        check_disjoint(replace(imagenet, markers=imagenet.markers | {"val": "imagenet/val"}), tmp_path)
