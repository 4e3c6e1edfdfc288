"""Sample table: reads return the last write, on any number of ranks; invalid ids and files are refused."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from clipx import distributed
from clipx.errors import UserError
from clipx.sample_table import SampleTable
from tests.helpers.gloo import Gloo

N = 23
COLUMNS = {"a": 0.0, "b": -0.5}


def history(steps: int) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Return random (ids, new rows) for each step."""
    generators = [torch.Generator().manual_seed(t) for t in range(steps)]
    batches = [torch.randperm(N, generator=g)[: 3 + t] for t, g in enumerate(generators)]
    return [
        (ids, {c: torch.randn(len(ids), generator=g) for c in COLUMNS})
        for ids, g in zip(batches, generators, strict=True)
    ]


def replay(steps: int, load: Path | None = None, skip: int = 0) -> dict[str, list[float]]:
    """Write a history to a table and to plain lists, compare all reads, and return the whole columns.

    With `load`, the table starts from this file, which has the first `skip` steps of the history.
    """
    table = SampleTable(COLUMNS, N)
    plain = {column: [initial] * N for column, initial in COLUMNS.items()}
    if load:
        assert table.max("a") == COLUMNS["a"]
        table.load(load)
    for t, (ids, rows) in enumerate(history(steps)):
        if t >= skip:
            found = table.read(ids)
            assert {c: found[c].tolist() for c in COLUMNS} == {c: [plain[c][i] for i in ids] for c in COLUMNS}
            table.write(ids, rows)
        for column, new in rows.items():
            for i, value in zip(ids.tolist(), new.tolist(), strict=True):
                plain[column][i] = value
        if t >= skip - 1:  # also of what was loaded
            assert all(table.max(c) == max(plain[c]) for c in COLUMNS)
    whole = table.whole()
    assert bool(whole) == (distributed.rank() == 0)
    return {column: values.tolist() for column, values in whole.items()}


def save(steps: int, path: Path) -> None:
    table = SampleTable(COLUMNS, N)
    for ids, rows in history(steps):
        table.write(ids, rows)
    whole = table.whole()
    if distributed.rank() == 0:
        save_file(whole, path)
    distributed.barrier()


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_several_ranks_hold_the_same_table_as_one(gloo: Gloo, world: int) -> None:
    found, alone = gloo.run(world, replay, 8), replay(8)
    assert [len(values) for values in alone.values()] == [N, N]
    assert found == [alone, *[{}] * (world - 1)]


@pytest.mark.slow
def test_a_table_is_restored_on_another_number_of_ranks(gloo: Gloo, tmp_path: Path) -> None:
    expected = replay(8)
    gloo.run(2, save, 4, tmp_path / "two")
    save(4, tmp_path / "one")
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    assert replay(8, tmp_path / "two", skip=4) == expected
    assert gloo.run(4, replay, 8, tmp_path / "two", 4)[0] == expected


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([3, N], f"sample_id={N} is out of range; allowed: 0..{N - 1}"),
        ([-1, 4], "sample_id=-1 is out of range"),
        ([4, 7, 4], "sample_id=4 is more than once in a batch"),
    ],
)
def test_ids_out_of_range_or_repeated_are_refused(ids: list[int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SampleTable(COLUMNS, N).read(torch.tensor(ids))


def test_columns_of_another_shape_than_their_ids_are_refused() -> None:
    rows = {"a": torch.zeros(3, 1), "b": torch.zeros(3, 1)}
    with pytest.raises(UserError, match=re.escape("shape [3, 1], its ids [3]")):
        SampleTable(COLUMNS, N).write(torch.arange(3), rows)


def test_a_missing_file_or_one_of_other_columns_or_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.safetensors"
    save(2, path)
    with pytest.raises(UserError, match=rf"has {N} rows, the data set has {N + 1} samples"):
        SampleTable(COLUMNS, N + 1).load(path)
    with pytest.raises(UserError, match=r"it has the columns \['a', 'b'\], this run's objective needs \['a', 'c'\]"):
        SampleTable({"a": 0.0, "c": 0.0}, N).load(path)
    with pytest.raises(UserError, match="holds no sample table"):
        SampleTable(COLUMNS, N).load(tmp_path / "missing")


def test_quantiles_of_few_and_of_many_rows() -> None:
    few = SampleTable(COLUMNS, 5)
    few.write(torch.arange(5), {"a": torch.arange(5.0), "b": torch.zeros(5)})
    assert few.quantiles()["a"] == pytest.approx([0, 0.2, 1, 2, 3, 3.8, 4])
    many = SampleTable({"a": 0.0}, 100_000)
    many.write(torch.arange(100_000), {"a": torch.arange(100_000.0)})
    assert many.quantiles()["a"] == pytest.approx([0, 5e3, 25e3, 5e4, 75e3, 95e3, 1e5], abs=50)
