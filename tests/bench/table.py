"""Cost of per-sample state: `make bench-table`.

Prints the memory of the table at 12 M pairs; the median time of a nuclr step against a clip step on the demo's towers,
taken in turns, with the relative extra time (target: at most +3%; paper 3 calls it "negligible"); and the milliseconds
to read and write a batch of 512 on one and on two ranks.
"""

import statistics
import time
from collections.abc import Callable

import torch

from clipx import distributed, objectives
from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig, TrainConfig
from clipx.sample_table import SampleTable
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.types import Batch, Progress
from tests.helpers.gloo import pool

PAIRS = 12_000_000
BATCH = 128  # of the steps, as in recipes/demo.yaml
ROWS = 512  # of read and write, paper 3's global batch
ROUNDS = 60


def seconds(action: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def parts(objective: dict[str, dict[str, object]]) -> TrainComponents:
    """Build the demo's model with an objective on 12 M pairs."""
    tower = "open_clip:mini-48"
    config = RunConfig(
        name="bench",
        recipe="bench",
        model=ModelConfig(image=ImageTowerConfig(name=tower), text=TextTowerConfig(name=tower)),
        objective=objective,
        train=TrainConfig(epochs=1, batch_size=BATCH),
    )
    return build_components(config, torch.device("cpu"), PAIRS, "bench")


def batch(p: TrainComponents) -> Batch:
    """Random pairs with random ids."""
    inputs = p.state.model.inputs
    return Batch(
        sample_id=torch.randint(PAIRS // BATCH, (BATCH,)) + torch.arange(BATCH) * (PAIRS // BATCH),
        image=torch.randn(BATCH, 3, inputs.image_size, inputs.image_size),
        text=torch.randint(1, 1000, (BATCH, inputs.context_length)),
        label=torch.zeros(BATCH, dtype=torch.int64),
    )


def steps() -> None:
    """Print the median times of a clip and a nuclr step, and the median of their differences relative to clip."""
    both = [parts({"clip": {}}), parts({"nuclr": {}})]
    at = Progress(step=1, total_steps=1000, epoch=1, total_epochs=10)
    times: list[list[float]] = [[], []]
    for turn in range(ROUNDS + 3):
        data = batch(both[0])
        for k in (0, 1) if turn % 2 else (1, 0):
            taken = seconds(lambda k=k, data=data: train_step(both[k], data, at))  # type: ignore[misc]
            if turn >= 3:
                times[k].append(taken)
    clip, nuclr = (statistics.median(t) for t in times)
    extra = statistics.median(b - a for a, b in zip(*times, strict=True))
    print(f"step, batch {BATCH}    clip {1e3 * clip:.1f} ms   nuclr {1e3 * nuclr:.1f} ms   {extra / clip:+.1%}")


def read_and_write() -> float:
    """Return the median milliseconds of a read, a write and both maxima for a batch of 512 of 12 M pairs."""
    columns = objectives.build({"nuclr": {}}, PAIRS).columns
    table = SampleTable(columns, PAIRS)
    generator = torch.Generator().manual_seed(0)
    times = []
    for _ in range(200):
        ids = torch.randint(PAIRS // ROWS, (ROWS,), generator=generator) + torch.arange(ROWS) * (PAIRS // ROWS)
        change = torch.randn(ROWS, generator=generator)
        distributed.barrier()

        def step(ids: torch.Tensor = ids, change: torch.Tensor = change) -> None:
            rows = table.read(ids)
            table.write(ids, {column: values + change for column, values in rows.items()})
            table.max("nuclr_zeta_image"), table.max("nuclr_zeta_text")

        times.append(seconds(step))
    return 1e3 * statistics.median(times)


def memory() -> None:
    """Print the size of the columns, summed over the ranks."""
    for variant in ("paper", "code"):
        columns = objectives.build({"nuclr": {"variant": variant}}, PAIRS).columns
        size = SampleTable(columns, PAIRS).values.nbytes / 1e6
        print(f"table, {variant}   {len(columns)} columns of {PAIRS / 1e6:.0f} M pairs: {size:.0f} MB")


def main() -> None:
    """Print all measurements."""
    torch.set_num_threads(1)
    memory()
    steps()
    print(f"read + write + max of {ROWS} rows, 1 rank    {read_and_write():.2f} ms")
    with pool() as gloo:
        print(f"read + write + max of {ROWS} rows, 2 ranks   {max(gloo.run(2, read_and_write)):.2f} ms")


if __name__ == "__main__":
    main()
