"""Several processes embed each row once, and give the results of one process byte for byte."""

from pathlib import Path

import pytest

from evaluation.embedding.features import share
from tests.helpers import fakes
from tests.helpers.commands import clipx


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 31, 64])
@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_the_ranks_share_each_row_once_in_whole_batches(count: int, world: int) -> None:
    shares = [share(count, 4, rank, world) for rank in range(world)]
    assert [row for rows in shares for row in rows] == list(range(count))
    assert all(rows.start % 4 == 0 for rows in shares if rows)


def sets(folder: Path) -> str:
    """Write two sets whose last batch of 4 images is incomplete and one of a single batch; return `datasets=[...]`."""
    fakes.labelled(folder / "things", train=31, test=13)
    fakes.captioned(folder / "shots" / "test", counts=(2, 5, 1, 3, 1))
    fakes.pairs(folder / "minimal", categories=("colour",))
    return f"datasets=[wds:{folder}/things,captions:{folder}/shots/test,pairs:{folder}/minimal]"


@pytest.mark.long
def test_two_ranks_give_the_rows_and_embeddings_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["eval", "model=open_clip:mini-48/random", sets(tmp_path), "batch_size=4", "workers=0", "device=cpu"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    files = {}
    for world in (1, 2):
        monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / f"cache{world}"))
        done = clipx(*arguments, f"out={tmp_path}/out{world}", f"processes={world}", cwd=tmp_path)
        assert "pair_accuracy" in done.stdout
        cached = sorted((tmp_path / f"cache{world}" / "features").iterdir())
        files[world] = [(path.name, path.read_bytes()) for path in cached]
    assert len(files[1]) == 7 and files[1] == files[2]
    one, two = (tmp_path / f"out{world}" / "results.jsonl" for world in (1, 2))
    assert one.read_bytes() == two.read_bytes() != b""


@pytest.mark.long
def test_a_failure_in_one_rank_ends_all_ranks(tmp_path: Path) -> None:
    good = {"txt": b"a", "png": fakes.picture(0)}
    fakes.shard(tmp_path / "s" / "0.tar", [good] * 6 + [good | {"png": fakes.picture(0)[:90]}])  # in rank 1's share
    arguments = ["model=open_clip:mini-48/random", f"datasets=[captions:{tmp_path}/s]", "batch_size=2", "workers=0"]
    done = clipx("eval", *arguments, "processes=2", cwd=tmp_path, code=2)
    assert done.stderr.count("s00006") == 1, "more than one rank reports the error, or none does"
    assert not (tmp_path / "runs").exists()
