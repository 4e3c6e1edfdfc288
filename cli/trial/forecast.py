"""`clipx check device=NAME processes=N`: memory and time of a run on GPUs of other machines."""

from math import ceil

from clipx.config.presets import num_pairs
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.training.forecast import PER_MACHINE, USABLE, Forecast, changes_that_fit, forecast, total_steps
from evaluation.runs.description import duration


def print_forecast(config: RunConfig, processes: int, name: str) -> None:
    """Print the memory of each GPU, the time of a step, the rate of the data loaders and the cost of the run.

    Raises UserError: as `forecast` does, or if a step does not fit. The message then names changes that fit, if any.
    """
    found = forecast(config, processes, name)
    machines = f" in {ceil(processes / PER_MACHINE)} machines of {PER_MACHINE}" if processes > PER_MACHINE else ""
    print(f"forecast      {processes} x {name}{machines}; calculated, see docs/scaling.md")
    for part, size in sorted(found.cost.memory.items(), key=lambda item: -item[1]):
        if size:
            print(f"  {part:<12}{size / 1e9:9.2f} GB")
    print(
        f"memory        {found.cost.peak / 1e9:.2f} GB of each GPU; usable: {found.usable / 1e9:.1f} GB, {USABLE:.0%}"
    )
    time = found.time
    parts = {"towers": time.towers, "objective": time.objective, "links": time.links, "network": time.network}
    shown = ", ".join(f"{part} {seconds * 1e3:.3g}" for part, seconds in parts.items() if seconds)
    print(f"step          {time.total * 1e3:.4g} ms: {shown}")
    rate = found.images_per_s
    print(f"loader        {rate:,.0f} images/s, {rate / processes:,.0f} for each GPU")
    print(f"run           {_run_cost(found)}")
    if not found.fits:
        changes = ", ".join(changes_that_fit(found, name))
        advice = f"a step fits with one of: {changes}" if changes else "no smaller batch fits: use smaller towers"
        raise UserError(
            f"train.batch_size={config.train.batch_size} on {processes} x {name} needs {found.cost.peak / 1e9:.1f} GB "
            f"of each GPU, of {found.usable / 1e9:.1f} usable; {advice}"
        )


def _run_cost(found: Forecast) -> str:
    steps = total_steps(found.config, num_pairs(found.config))
    if steps is None or found.gpu_hours is None:
        return "length unknown before the data are read; train.samples=N train.epochs=null sets it"
    took = duration(steps * found.time.total)
    return f"{steps:,} steps, {took}, {found.gpu_hours:,.1f} GPU-hours without evaluation"
