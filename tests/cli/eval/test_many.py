"""`clipx eval` with several runs, with limit=, on held-out pairs, image tables and saved Hugging Face data sets."""

import json
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import datasets
import pytest

from cli.eval import many, one
from cli.report.command import report
from cli.settings.compose import compose_evals
from clipx.config.evaluation import EvalConfig
from clipx.config.schema import RunConfig
from clipx.data.sources.opening import open_pair_source
from clipx.errors import Fault, UserError
from clipx.run.folder import ENVIRONMENT, RunFolder
from evaluation.claims.measures import MetricReader
from evaluation.datasets.captioned import open_held_out
from evaluation.datasets.opening import open_dataset
from evaluation.runs import reader, results
from evaluation.types import DEFAULTS, Result, Settings
from tests.helpers import fakes
from tests.helpers.folder import settings
from tests.helpers.runs import prepared, untrained

pytestmark = pytest.mark.usefixtures("empty_cache")


def trained(root: Path, name: str, seed: int = 0, held_out: float = 0.0) -> Path:
    """Write a run with a checkpoint of random weights."""
    config = prepared(root, samples=24)
    config.model.image.name = "small:conv"  # built ten times as fast as a tower of open_clip
    config.name, config.seed, config.data.held_out = name, seed, held_out
    return untrained(config, step=0)


def failed_start(root: Path, name: str) -> Path:
    """Write a run without a checkpoint."""
    config = settings(root)
    config.name = name
    return RunFolder.create(config).path


def quick(spec: str, **changes: object) -> EvalConfig:
    config = EvalConfig(datasets=[spec], tasks=["retrieval"], device="cpu", workers=0)
    return replace(config, **changes)  # type: ignore[arg-type]


def test_runs_are_given_without_a_key_or_by_checkpoint() -> None:
    lists = ("checkpoint=[runs/a/s0,runs/b/s0]", "checkpoint=runs/a/s0,runs/b/s0")
    for given in ("runs/a/s0 runs/b/s0", *lists, "runs/a/s0 checkpoint=runs/b/s0"):
        config, runs = compose_evals([*given.split(), "tasks=[retrieval]"])
        assert runs == ["runs/a/s0", "runs/b/s0"] and config.checkpoint is None and config.tasks == ["retrieval"]


def test_folders_select_runs_and_runs_without_a_checkpoint_are_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(trained(tmp_path, "a", seed).relative_to(tmp_path)) for seed in (10, 2)]
    failed_start(tmp_path, "b")
    monkeypatch.chdir(tmp_path)
    assert many.find_runs(["runs"]) == runs[::-1]
    assert capsys.readouterr().err.endswith("): runs/b/s0\n")
    assert many.find_runs(["runs/a/s2", "runs/a"]) == runs[::-1]
    assert many.find_runs([f"{tmp_path}/runs/a/s10", "runs/a"]) == [f"{tmp_path}/runs/a/s10", "runs/a/s2"]
    assert many.find_runs([f"{runs[0]}/checkpoints/step_00000000"]) == [f"{runs[0]}/checkpoints/step_00000000"]
    with pytest.raises(UserError, match="no run with"):
        many.find_runs(["train"])


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_all_runs_are_evaluated_and_one_failure_does_not_end_the_others(
    jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [trained(tmp_path, "a"), failed_start(tmp_path, "b"), trained(tmp_path, "c"), failed_start(tmp_path, "d")]
    RunFolder(runs[3]).record_divergence(step=7, bad_steps=5)
    config = quick(fakes.captioned(tmp_path / "shots"), jobs=jobs)
    with pytest.raises(UserError, match=rf"1 of 4 runs failed: {runs[1]}; the lines above say why"):
        many.evaluate(config, [str(run) for run in runs])
    assert [row.task for row in results.read(runs[3] / "results.jsonl")] == ["train"]  # the divergence
    for run in (runs[0], runs[2]):
        assert {row.task for row in results.read(run / "results.jsonl")} == {"retrieval"}
    printed = capsys.readouterr()
    if jobs == 1:  # else the line about the diverged run is in its output.log
        assert "it has no checkpoint yet" in printed.err
    assert f"{runs[1]} has no checkpoint: train the run" in printed.err and "4/4" in printed.err
    assert printed.out.endswith("To rank: clipx report compare RUN...\n")


def test_an_unexpected_error_of_one_run_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = RuntimeError("no such kernel")
    monkeypatch.setattr(one, "evaluate", MagicMock(side_effect=[error, [], error]))
    with pytest.raises(Fault, match="2 of 3 runs failed: runs/a/s0, runs/c/s0"):
        many.evaluate(quick("held_out"), ["runs/a/s0", "runs/b/s0", "runs/c/s0"])
    printed = capsys.readouterr().err
    assert "RuntimeError: no such kernel" in printed and "3/3 runs/c/s0 failed: as runs/a/s0\n" in printed


def test_rows_with_a_limit_are_marked_and_reports_leave_them_out(tmp_path: Path) -> None:
    run = trained(tmp_path, "a")
    config = quick(fakes.captioned(tmp_path / "shots"), checkpoint=str(run))
    whole = one.evaluate(config)
    artifacts = {path: path.read_text() for path in (run / "artifacts").iterdir()}
    some = one.evaluate(replace(config, limit=2))
    assert {row.split for row in some} == {"all, limit 2"} and {row.hashes["limit"] for row in some} == {"2"}
    assert {row.n for row in some if row.metric.startswith("image_to_text")} == {2}
    assert {path: path.read_text() for path in artifacts} == artifacts
    assert results.read(run / "results.jsonl") == [*whole, *some]
    assert reader.read(run).results == whole and set(reader.read(run).artifacts) == {"retrieval-shots"}
    for limited, expected in (("false", False), ("true", True)):
        report([str(run), f"limited={limited}", f"out={tmp_path / limited}"])
        assert ("limit 2" in (tmp_path / limited / "report.csv").read_text()) is expected


@pytest.mark.parametrize(("kind", "count"), [("labelled", 5), ("captioned", 2), ("pairs", 2)])
def test_a_limit_keeps_some_items_of_every_kind_of_set(kind: str, count: int, tmp_path: Path) -> None:
    spec = getattr(fakes, kind)(tmp_path / "set")
    small, whole = (open_dataset(spec, Settings(limit=limit)) for limit in (count, None))
    split = whole.splits[0]
    assert len(small.images(split)) == count * (2 if kind == "pairs" else 1) < len(whole.images(split))
    assert small.fingerprint(split, "images") != whole.fingerprint(split, "images")
    kept = {image.tobytes() for image in whole.images(split)}
    assert all(image.tobytes() in kept for image in small.images(split))


def test_held_out_pairs_are_an_evaluation_set_that_no_claim_reads(tmp_path: Path) -> None:
    run = trained(tmp_path, "a", held_out=0.25)
    rows = one.evaluate(quick("held_out", checkpoint=str(run), tasks=[]))
    recall = [row for row in rows if row.metric == "image_to_text_recall@1"]
    assert [(row.dataset, row.split, row.n) for row in recall] == [("test/held_out", "held_out", 6)]
    read = reader.read(run)
    reading = MetricReader("retrieval", ("image_to_text_recall@1",))
    assert reading.read(read) == {}
    assert replace(reading, datasets=("heldout",)).read(read) == {"retrieval heldout": recall[0].value}

    with pytest.raises(UserError, match=r"held_out:.*: the run holds out no pairs: it has data\.held_out=0\.0"):
        one.evaluate(quick("held_out", checkpoint=str(trained(tmp_path, "b"))))


def run_on_table(root: Path, captions: str) -> tuple[RunConfig, Path]:
    """Write 40 images with their table and the folder of a run that holds half of them out."""
    write_table(root / "train", count=40)
    config = settings(root)
    config.data.source, config.data.annotations, config.data.split = "csv", "train/pairs.csv", "train"
    config.data.held_out, config.data.captions = 0.5, captions
    return config, RunFolder.create(config).path


def test_an_undecodable_held_out_pair_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, run = run_on_table(tmp_path, "each")
    count = len(open_held_out(f"held_out:{run}", run, DEFAULTS).images("held_out"))
    (cached,) = (Path(os.environ["CLIPX_CACHE"]) / "held_out").iterdir()
    held_image = min(json.loads(cached.read_text())) // 2  # two captions an image
    (tmp_path / "train" / f"{held_image}.png").write_bytes(b"broken")
    assert len(open_held_out(f"held_out:{run}", run, DEFAULTS).images("held_out")) == count - 1
    assert "samples are unusable, left out" in capsys.readouterr().err


def test_held_out_pairs_of_data_that_have_changed_are_refused(tmp_path: Path) -> None:
    """Another pair may be held out then, which the run has trained on."""
    config, run = run_on_table(tmp_path, "first")
    fingerprint = open_pair_source(config.data).fingerprint
    (run / ENVIRONMENT).write_text(json.dumps({"data": fingerprint}))
    (run / "checkpoints" / "step_00000001").mkdir(parents=True)
    assert open_held_out(f"held_out:{run}", run, DEFAULTS).splits == ("held_out",)
    write_table(tmp_path / "train", count=39)
    with pytest.raises(UserError, match=f"changed since the run was trained .*{fingerprint}.* score another set"):
        open_held_out(f"held_out:{run}", run, DEFAULTS)


def write_table(folder: Path, count: int = 4, delimiter: str = ",") -> Path:
    """Write images with two captions each, and their table."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"image{delimiter}caption"]
    for i in range(count):
        (folder / f"{i}.png").write_bytes(fakes.picture(i))
        lines += [f"{i}.png{delimiter}caption {c} of image {i}" for c in range(2)]
    path = folder / ("pairs.csv" if delimiter == "," else "pairs.tsv")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_tables_give_the_same_results_as_shards_with_equal_content(tmp_path: Path) -> None:
    specs = [f"{kind}:{write_table(tmp_path / kind, delimiter=d)}" for kind, d in (("csv", ","), ("tsv", "\t"))]
    model = str(trained(tmp_path, "a"))
    values = []
    for spec in (*specs, fakes.captioned(tmp_path / "shards", (2, 2, 2, 2))):
        rows: list[Result] = one.evaluate(quick(spec, checkpoint=model))
        values.append([(row.metric, row.value, row.n) for row in rows])
    assert values[0] == values[1] == values[2]


def test_a_table_may_name_any_path(tmp_path: Path) -> None:
    table = write_table(tmp_path / "images")
    rows = f"image,caption\n{tmp_path / 'images/0.png'},absolute\n../images/1.png,relative\n"
    (tmp_path / "tables").mkdir()
    other = table.rename(tmp_path / "tables" / "pairs.csv")
    other.write_text(rows)
    assert len(open_dataset(f"csv:{other}").images("all")) == 2


def test_a_table_may_have_other_columns_and_missing_parts_are_named(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table")
    table.write_text(table.read_text().replace("image,caption", "file,text"))
    with pytest.raises(UserError, match=r": image_column=image is not a column of pairs.csv; allowed: file, text$"):
        open_dataset(f"csv:{table}")
    chosen = Settings(image_column="file", caption_column="text")
    assert len(open_dataset(f"csv:{table}", chosen).images("all")) == 4
    (tmp_path / "table" / "2.png").unlink()
    with pytest.raises(UserError, match=r"2.png is missing"):
        open_dataset(f"csv:{table}", chosen)
    with pytest.raises(UserError, match=r"no file nowhere.csv"):
        open_dataset("csv:nowhere.csv")


@pytest.mark.parametrize("splits", ["3", "[" * 20_000 + "]" * 20_000])
def test_odd_splits_of_a_saved_hugging_face_data_set_are_no_traceback(tmp_path: Path, splits: str) -> None:
    (tmp_path / "dataset_dict.json").write_text(f'{{"splits": {splits}}}')
    with pytest.raises(UserError, match=r"is not a data set of|no split test"):
        open_dataset(f"hf:{tmp_path}")


def test_a_saved_hugging_face_data_set_is_opened(tmp_path: Path) -> None:
    place = tmp_path / "me@lab" / "saved"
    content = {
        "image": [{"bytes": fakes.picture(i), "path": None} for i in range(4)],
        "caption": [[f"caption {c} of image {i}" for c in range(2)] for i in range(4)],
    }
    rows = datasets.Dataset.from_dict(content).cast_column("image", datasets.Image())
    datasets.DatasetDict({"train": rows, "test": rows.select(range(3))}).save_to_disk(str(place))
    data = open_dataset(f"hf:{place}")
    assert (data.splits, len(data.images("test")), len(data.texts("test", "captions"))) == (("test",), 3, 6)
    assert len(open_dataset(f"hf:{place}@train").images("train")) == 4
