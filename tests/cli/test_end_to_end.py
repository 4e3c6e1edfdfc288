"""Train, evaluate and report on generated shards and on real photographs."""

import tarfile
from pathlib import Path

import pytest

from clipx.config.schema import RunConfig
from tests.helpers.commands import clipx_here, tiny
from tests.helpers.folder import add, jpeg, write_shards
from tests.helpers.runs import lines, log


@pytest.mark.slow
def test_train_and_eval_skip_finished_work_and_report_shows_the_run(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=64)
    captions = f"datasets=[captions:{tmp_path}/shards/train]"
    train = ["train", *tiny(tmp_path / "shards"), "name=e2e", "runs=my runs", "train.device=cpu"]
    run = tmp_path / "my runs/e2e/s0"
    printed = clipx_here(*train, cwd=tmp_path).stderr.splitlines()
    assert printed[0] == "my runs/e2e/s0: small:conv and small:clip_bag on shards (64 pairs), CPU"
    assert printed[-1] == "to evaluate: clipx eval 'my runs/e2e/s0' 'datasets=[NAME]'  # clipx ls data lists the names"
    assert "is done: 2 steps" in clipx_here(*train, cwd=tmp_path).stderr
    assert (log(run)[-1]["progress"], log(run)[-1]["left_s"]) == (1, 0)
    evaluate = ["eval", "checkpoint=my runs/e2e/s0", captions, "tasks=[retrieval]"]
    clipx_here(*evaluate, cwd=tmp_path)
    results = run / "results.jsonl"
    rows = lines(results)
    assert {row["metric"] for row in rows} == {
        f"{d}_recall@{k}" for d in ("image_to_text", "text_to_image") for k in (1, 5, 10)
    }
    assert all(row["low"] <= row["value"] <= row["high"] and row["hashes"]["checkpoint"] for row in rows)
    before = results.stat().st_mtime_ns
    clipx_here(*evaluate, cwd=tmp_path)
    assert results.stat().st_mtime_ns == before, "a finished evaluation was repeated"
    clipx_here("report", "my runs/e2e", cwd=tmp_path)
    page = (run.parent / "report.html").read_text()
    assert "text → image R@1" in page and "<svg" in page


def test_eval_names_a_corrupt_checkpoint(copied_run: tuple[RunConfig, Path], shards: Path, tmp_path: Path) -> None:
    _, run = copied_run
    weights = next(run.glob("checkpoints/*/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    done = clipx_here("eval", str(run), f"datasets=[captions:{shards}/train]", cwd=tmp_path, code=2)
    assert "model.safetensors is corrupt or was changed" in done.stderr


@pytest.mark.slow
def test_too_many_bad_samples_end_a_run_with_exit_code_2_and_their_list(tmp_path: Path) -> None:
    """Images are decoded only during training, so the run starts; it ends if more than max_bad_rate of them are bad."""
    folder = write_shards(tmp_path / "shards" / "train", samples=60)
    with tarfile.open(folder / "corrupt.tar", "w") as shard:
        for i in range(4):
            add(shard, f"torn{i}.jpg", jpeg("red")[:400])
            add(shard, f"torn{i}.txt", b"a caption")
    arguments = [*tiny(tmp_path / "shards", samples=64), "log.every=1"]
    done = clipx_here("train", *arguments, "data.max_bad_rate=0.1", "name=some", cwd=tmp_path)
    assert {f"corrupt.tar:torn{i}: corrupt image" in done.stderr for i in range(4)} == {True}
    rows = log(tmp_path / "runs/some/s0")
    assert (rows[-1]["step"], rows[-1]["bad"]) == (8, 4)
    done = clipx_here("train", *arguments, "data.max_bad_rate=0.05", "name=much", cwd=tmp_path, code=2)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("clipx: 4 of 64 samples are bad, more than data.max_bad_rate=0.05: corrupt.tar:torn")
    assert all(f"torn{i}" in last for i in range(4))
    listed = (tmp_path / "runs/much/s0/bad_samples.txt").read_text().splitlines()
    assert len(listed) == 4 and all(f"torn{i}" in line for i, line in enumerate(sorted(listed)))


@pytest.mark.long
@pytest.mark.real_data
def test_on_photographs_each_of_the_five_captions_is_evaluated(tmp_path: Path, real_data: Path) -> None:
    settings = ["data=flickr8k", f"data.root={real_data}/flickr8k", "data.workers=1"]
    settings += ["train.samples=640", "schedule.warmup_steps=1", "name=photos"]
    clipx_here("train", "recipe=demo", *settings, cwd=tmp_path)
    clipx_here("eval", "checkpoint=runs/photos/s0", cwd=tmp_path)
    rows = lines(tmp_path / "runs/photos/s0/results.jsonl")
    assert {row["dataset"] for row in rows} == {"flickr8k/test"}
    assert {row["metric"]: row["n"] for row in rows}["text_to_image_recall@1"] == 5000
