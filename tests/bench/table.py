"""Cost of per-sample state: `make bench-table`.

Prints the memory of NUCLR's sample table at 12 M pairs, and the milliseconds to read and write a batch of 512 on one
and on two ranks. `clipx bench nuclr` compares whole training steps with CLIP's.
"""

import statistics

import torch

from clipx import distributed, objectives
from clipx.sample_table import SampleTable
from tests.bench.measure import seconds
from tests.helpers.gloo import pool

PAIRS = 12_000_000
ROWS = 512  # per read or write; paper 3's global batch


def read_and_write() -> float:
    """Return the median milliseconds of NUCLR's table access in a step: read, write, maximum of each zeta column."""
    columns = objectives.build({"nuclr": {}}, PAIRS).columns
    table = SampleTable(columns, PAIRS)
    generator = torch.Generator().manual_seed(0)
    times = []
    for _ in range(200):
        spacing = PAIRS // ROWS  # one id from each interval of this length, so that all differ
        ids = torch.randint(spacing, (ROWS,), generator=generator) + torch.arange(ROWS) * spacing
        change = torch.randn(ROWS, generator=generator)
        distributed.barrier()

        def step(ids: torch.Tensor = ids, change: torch.Tensor = change) -> None:
            rows = table.read(ids)
            table.write(ids, {column: values + change for column, values in rows.items()})
            table.max("nuclr_zeta_image"), table.max("nuclr_zeta_text")

        times.append(seconds(step))
    return 1e3 * statistics.median(times)


def memory() -> None:
    """Print the number and the size of the columns for two variants of NUCLR."""
    for variant in ("paper", "code"):
        columns = objectives.build({"nuclr": {"variant": variant}}, PAIRS).columns
        size = SampleTable(columns, PAIRS).values.nbytes / 1e6
        print(f"table, {variant}   {len(columns)} columns of {PAIRS / 1e6:.0f} M pairs: {size:.0f} MB")


def main() -> None:
    torch.set_num_threads(1)
    memory()
    print(f"read + write + max of {ROWS} rows, 1 rank    {read_and_write():.2f} ms")
    with pool() as gloo:
        print(f"read + write + max of {ROWS} rows, 2 ranks   {max(gloo.run(2, read_and_write)):.2f} ms")


if __name__ == "__main__":
    main()
