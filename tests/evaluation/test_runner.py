"""Runner: choice of tasks, provenance of rows, and reuse of stored results."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from PIL import Image

from clipx.config.schema import DataConfig
from clipx.errors import UserError
from evaluation.datasets.composition import CHANGES
from evaluation.datasets.kinds import Labelled
from evaluation.runs import results
from evaluation.tasks import TASKS
from evaluation.tasks.linear_probe import LinearProbe
from evaluation.types import Settings
from tests.helpers import fakes, replicas
from tests.helpers.fakes import run
from tests.helpers.layout_faults import forbid

ALL = ["zeroshot", "linear_probe", "retrieval", "pairs"]
PROMPT = "一/" + "张照片" * 25 + "{c}"  # no name of a file: too long, and with a slash


def three_kinds(tmp_path: Path) -> list[str]:
    return [
        fakes.labelled(tmp_path / "things", train=30),
        fakes.captioned(tmp_path / "shots" / "test"),
        fakes.pairs(tmp_path / "minimal"),
    ]


def test_every_task_runs_on_the_sets_that_fit_and_its_rows_have_provenance_and_artifacts(tmp_path: Path) -> None:
    rows = run(tmp_path, three_kinds(tmp_path), ALL)
    assert {(row.task, row.dataset) for row in rows} == {
        ("zeroshot", "things"),
        ("linear_probe", "things"),
        ("retrieval", "shots/test"),
        ("pairs", "minimal"),
    }
    for row in rows:
        assert (row.model, row.seed) == ("fake", 7)
        assert row.hashes["checkpoint"] == "c0" and 0 <= row.low <= row.value <= row.high <= 1
    assert {"templates/test", "classnames/test", "labels/test", "images/test"} <= set(rows[0].hashes)
    assert results.read(tmp_path / "out" / "results.jsonl") == rows
    folder = tmp_path / "out" / "artifacts"
    kinds = {path.stem: json.loads(path.read_text())["kind"] for path in folder.iterdir()}
    assert kinds == {
        "zeroshot-things": "confused",
        "linear_probe-things": "linear_probe",
        "retrieval-shots_test": "retrieval",
    }
    shown = json.loads((folder / "retrieval-shots_test.json").read_text())
    sources = [query["src"] for query in shown["image_to_text"]]
    sources += [image["src"] for query in shown["text_to_image"] for image in query["images"]]
    assert sources and all(src.startswith("data:image/jpeg;base64,") for src in sources)
    assert set(shown["text_to_image"][0]["images"][0]) == {"src", "similarity", "correct"}


def test_classes_with_one_name_are_named_below_the_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = fakes.labelled(tmp_path / "things")
    run(tmp_path, [spec], ["zeroshot"])
    assert "name" not in capsys.readouterr().out
    names = tmp_path / "things" / "classnames.txt"
    first, _, *others = names.read_text().splitlines()
    names.write_text("\n".join([first, first, *others]) + "\n")
    run(tmp_path, [spec], ["zeroshot"])
    assert first in capsys.readouterr().out


def test_rows_of_minimal_pairs_name_prompts_that_are_not_the_default(tmp_path: Path) -> None:
    replicas.mmvp(tmp_path, ["Color", "Count"])
    spec = f"mmvp:{tmp_path}"
    default = run(tmp_path, [spec], ["pairs"])
    simple = run(tmp_path, [spec], ["pairs"], settings=Settings(prompts="simple"))
    assert {row.split for row in default} == {"test"} and {row.split for row in simple} == {"test, prompts simple"}
    assert results.read(tmp_path / "out" / "results.jsonl") == [*default, *simple]
    no_prompts = run(tmp_path, [fakes.pairs(tmp_path / "minimal")], ["pairs"], settings=Settings(prompts="simple"))
    assert {row.split for row in no_prompts} == {"all"}


def test_an_empty_list_of_tasks_runs_all_that_fit(tmp_path: Path) -> None:
    without_train = fakes.labelled(tmp_path / "others")
    replicas.sugar_crepe(tmp_path, dict.fromkeys(CHANGES, 1))
    rows = run(tmp_path, [*three_kinds(tmp_path), without_train, f"sugar_crepe:{tmp_path}"], [])
    expected = {name for name, task in TASKS.items() if not (task.variants or task.on_request)} - {"associations"}
    assert {row.task for row in rows} == expected
    assert {row.task for row in rows if row.dataset == "others"} == {"zeroshot"}


def test_finished_rows_are_not_repeated_unless_forced_and_other_inputs_add_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = three_kinds(tmp_path)
    path = tmp_path / "out" / "results.jsonl"
    first = run(tmp_path, specs, ALL)
    marked = path.read_text().replace('"model": "fake"', '"model": "first run"')
    path.write_text(marked)
    assert "nothing new" not in capsys.readouterr().err
    again = run(tmp_path, specs, ALL)
    assert "nothing new" in capsys.readouterr().err
    assert {row.model for row in again} == {"first run"} and path.read_text() == marked
    assert run(tmp_path, specs, ALL, force=True) == first
    assert len(results.read(path)) == len(first)
    added = run(tmp_path, specs[:1], ["zeroshot"], fakes.encoder(checkpoint="c1"))
    (tmp_path / "things" / "zeroshot_classification_templates.txt").write_text("{c}\n")
    added += run(tmp_path, specs[:1], ["zeroshot"])
    assert len(results.read(path)) == len(first) + len(added)


def test_results_of_other_settings_do_not_replace_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [fakes.labelled(tmp_path / "things", train=30), fakes.captioned(tmp_path / "shots" / "test")]
    calls = [
        (["zeroshot", "linear_probe", "retrieval", "geometry"], Settings()),
        (["zeroshot", "linear_probe"], Settings(prompts=PROMPT)),
        (["retrieval", "geometry"], Settings(protocol="paper")),
        (
            ["zeroshot", "retrieval", "clustering", "caption_clustering", "mixed_search"],
            Settings(protocol="centred"),
        ),
        (["clustering", "caption_clustering", "mixed_search"], Settings()),
    ]
    first = [run(tmp_path, specs, tasks, settings=settings) for tasks, settings in calls]
    artifacts = {path.name: path.read_text() for path in (tmp_path / "out" / "artifacts").iterdir()}
    assert "zeroshot-things.json" in artifacts and any("照片" in name for name in artifacts)
    monkeypatch.setattr("evaluation.runner._score", None)  # scoring would now fail
    assert [run(tmp_path, specs, tasks, settings=settings) for tasks, settings in calls] == first
    assert {path.name: path.read_text() for path in (tmp_path / "out" / "artifacts").iterdir()} == artifacts
    rows = results.read(tmp_path / "out" / "results.jsonl")
    assert len(rows) == len({(row.task, row.dataset, row.split, row.metric) for row in rows})
    templates = {row.split: row.hashes["templates/test"] for row in rows if row.task == "zeroshot"}
    assert templates["test"] != templates[f"test, prompts {PROMPT}"]


def test_pools_add_rows_without_changing_others(tmp_path: Path) -> None:
    spec = fakes.captioned(tmp_path / "shots" / "test")
    path = tmp_path / "out" / "results.jsonl"
    tasks = ["retrieval", "geometry"]
    plain = run(tmp_path, [spec], tasks)
    pooled = run(tmp_path, [spec], tasks, settings=Settings(pools=(2, 3, 4)))
    assert {row.split for row in pooled} == {"test", "test, 2 of 4 images (seed 0)", "test, 3 of 4 images (seed 0)"}
    assert run(tmp_path, [spec], tasks) == plain
    assert run(tmp_path, [spec], tasks, settings=Settings(pools=(3,))) == [r for r in pooled if "2 of" not in r.split]
    rows = results.read(path)
    assert len(rows) == len({(row.task, row.split, row.metric) for row in rows}) == len(pooled)
    with pytest.raises(UserError, match=r"pools=5 is too large for datasets=.*: it has 4 images"):
        run(tmp_path, [spec], ["retrieval"], settings=Settings(pools=(4, 5)))


def test_tasks_are_scored_on_the_given_device(tmp_path: Path) -> None:
    with patch.object(LinearProbe, "score", autospec=True, side_effect=LinearProbe.score) as score:
        run(tmp_path, [fakes.labelled(tmp_path / "things", train=30)], ["linear_probe"])
    assert [str(call.args[3]) for call in score.call_args_list] == ["cpu"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_linear_probe_has_the_same_accuracy_on_gpu_and_cpu(tmp_path: Path) -> None:
    data = fakes.opened(fakes.labelled(tmp_path / "things", train=60, test=60), Labelled)
    task = LinearProbe()
    features = {
        request: fakes.embeddings(60, seed, dim=8) + 3 * torch.eye(3, 8)[data.labels(request.split)]
        for seed, request in enumerate(task.requests(data))
    }
    torch.cuda.reset_peak_memory_stats()
    on_gpu = task.score(data, features, "cuda").results[0].value
    assert torch.cuda.max_memory_allocated() > 0
    assert on_gpu == pytest.approx(task.score(data, features).results[0].value, abs=0.05)


def test_a_set_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    good, bad = fakes.labelled(tmp_path / "good"), fakes.captioned(tmp_path / "bad")
    fakes.shard(tmp_path / "bad" / "00000.tar", [{"png": b"no image", "txt": b"a"}])
    with pytest.raises(UserError, match="corrupt image"):
        run(tmp_path, [bad, good], ["zeroshot", "retrieval"])
    assert {row.dataset for row in results.read(tmp_path / "out" / "results.jsonl")} == {"good"}


@pytest.mark.parametrize("training", [None, DataConfig(name="t", source="folder", root="/gone")])
@pytest.mark.parametrize("write", [fakes.captioned, fakes.labelled])
def test_a_forbidden_set_does_not_stop_the_others(
    write: Callable[[Path], str], training: DataConfig | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A captioned set is read when it is opened, the labels of the other one afterwards."""
    good, bad = fakes.labelled(tmp_path / "good"), write(tmp_path / "bad")
    forbid(monkeypatch, os, "scandir", "bad" if write is fakes.captioned else "bad/test")
    with pytest.raises(UserError, match=rf"{bad}: cannot use .*bad.*Permission denied"):
        run(tmp_path, [bad, good], [], training=training)
    assert {row.dataset for row in results.read(tmp_path / "out" / "results.jsonl")} == {"good"}
    if write is fakes.captioned:
        with pytest.raises(UserError, match=r"Permission denied.*; tasks=retrieval needs"):
            run(tmp_path, [bad, good], ["retrieval"])


@pytest.mark.parametrize(
    ("kinds", "tasks", "part"),
    [
        ("labelled", ["retrieval"], "tasks=retrieval needs a captioned data set"),
        ("labelled", ["linear_probe"], "needs a labelled data set with train and test splits"),
        ("", ["pairs"], "datasets are none"),
        ("train", [], "things (labelled: train), which fits no task"),
        ("twins", ["zeroshot"], "both called 'things'"),
    ],
)
def test_impossible_requests_give_a_one_line_error(tmp_path: Path, kinds: str, tasks: list[str], part: str) -> None:
    specs = {
        "labelled": [fakes.labelled(tmp_path / "a" / "things")],
        "twins": [fakes.labelled(tmp_path / name / "things") for name in ("a", "b")],
        "train": [fakes.labelled(tmp_path / "t" / "things", train=3, test=0)],
        "": [],
    }[kinds]
    with pytest.raises(UserError) as caught:
        run(tmp_path, specs, tasks)
    assert part in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("alike", "said"), [(4, "40%"), (0, "")])
def test_captions_that_several_images_have_are_named_below_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], alike: int, said: str
) -> None:
    """Retrieval counts them as wrong, so R@1 is low however good the model is."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(5):
        Image.new("RGB", (16, 16), (50 * i, 0, 0)).save(folder / f"{i}.jpg")
        (folder / f"{i}.txt").write_text(f"{'a dog' if i < alike else f'dog {i}'}\nimage {i}\n")
    run(tmp_path, [f"folder:{folder}"], ["retrieval"])
    assert (f"{said} of the captions" in capsys.readouterr().out) is bool(said)
