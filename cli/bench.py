"""clipx bench NAME [seconds=600] [steps=N] [out=DIR] [key=value ...]
clipx bench recipe=NAME [arms=a,b] [reference=ARM] [seconds=600] [steps=N] [out=DIR] [key=value ...]

Times training steps of several arms in turns, on generated pairs and with random weights, and prints the ratios of
step times to the reference arm with intervals. Ends after seconds=, after steps= steps of each arm, or when the
claim is decided.
NAME: nuclr (claim 3.6) or wpse (claim 5.7), on the papers' towers; writes verdicts to DIR/claims.json (default
runs/bench/NAME). The report uses these verdicts only if no settings (key=value) were given.
recipe=NAME: any recipe; the default compares all its arms with its first one.
All arms must fit in memory. On a GPU, the recipe's batch size is halved until a step fits. On a CPU, the
default is train.batch_size=16 train.precision=fp32.
"""

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from cli.settings.arguments import key_of, split_given, split_positional, take_options
from cli.settings.compose import LONGEST_NAME, compose_run
from cli.settings.recipes import recipe
from clipx.config.schema import RunConfig
from clipx.config.setting import AT_LEAST_1, between, setting
from clipx.errors import UserError
from clipx.utils.files import content_hash, write_text
from clipx.utils.registry import lookup, one_of
from clipx.utils.terminal import stdout_console
from clipx.verdict import Check, CheckedClaim, overall
from evaluation.claims.evidence import write_stated
from evaluation.claims.measurements.step_time import RelativeStepTime, Times, time_in_turns
from evaluation.claims.table import CLAIMS
from evaluation.types import csv_text

if TYPE_CHECKING:  # slow imports, here and in the functions: a mistyped name is found before them
    import torch

Configs = dict[str, RunConfig]  # arm -> config, the reference first
Steps = dict[str, Callable[[], float]]  # arm -> does a step on new generated pairs and returns its seconds


@dataclass(frozen=True)
class Benchmark:
    """Arms whose steps are timed, and the claims on their cost."""

    recipe: str
    reference: str
    arms: tuple[str, ...]
    claim: str = ""  # id of the claim on ratios of step times; "" for the user's own comparison
    bound: float | None = None  # the claim holds if every ratio to the reference is at most this
    size: Callable[[Configs], CheckedClaim] | None = None  # checks a second claim, on size


def parameters(configs: Configs) -> CheckedClaim:
    """Compare the number of parameters of all arms with that of the first arm (paper 5, section 5.3)."""
    import torch

    from clipx.models.clip import build_model

    reference, *arms = configs
    counts = {}
    for arm, config in configs.items():
        with torch.device("meta"):  # allocates nothing
            model = build_model(config, pretrained=False)
        counts[arm] = sum(p.numel() for p in model.parameters())
    statement = "The model size does not change significantly against CLIP with the same towers"
    ratio = "ratio of parameters {} / {}"
    # bound: ours; the paper states no significant change, without a number
    checks = [Check(ratio.format(arm, reference), counts[arm] / counts[reference], high=1.01) for arm in arms]
    return CheckedClaim("5.11", statement, checks)


def added_state(configs: Configs) -> CheckedClaim:
    """Compute the MB that nuclr stores for TABLE_PAIRS pairs and sogclr does not (paper 3, appendix G).

    They are the columns that only nuclr has: sogclr is nuclr without zeta.
    """
    from clipx import objectives
    from clipx.training.cost import FLOAT32_BYTES

    nuclr = objectives.build(configs["nuclr"].objective, TABLE_PAIRS).columns
    sogclr = objectives.build({"sogclr": {}}, TABLE_PAIRS).columns
    added = FLOAT32_BYTES * TABLE_PAIRS * (len(nuclr) - len(sogclr)) / 1e6
    statement = "The state that NUCLR adds to SogCLR's takes less than 100 MB for 12 million pairs"
    return CheckedClaim("3.13", statement, [Check("MB for 12 million pairs", added, high=100)])


BENCHMARKS = {
    # bound: ours; paper 3 calls the overhead negligible, without a number
    "nuclr": Benchmark("nuclr_cc3m", "clip", ("nuclr",), "3.6", 1.03, added_state),
    # bound: ours; paper 5 states that the time does not change significantly, without a number
    "wpse": Benchmark("wpse_cc3m", "clip", ("gaussian", "imq"), "5.7", 1.10, parameters),
}
# train.* on CPUs, unless the user sets them: a step on the papers' batches takes minutes, and most CPUs emulate bf16
ON_CPU = {"batch_size": 16, "precision": "fp32"}
KEPT = ("weights", "gradients", "optimizer", "averages")  # memory of a run between its steps
TABLE_PAIRS = 12_000_000  # training pairs in paper 3, appendix G
WARM_UP = 2  # steps of each arm; the first step allocates the optimizer's moments and searches for fast convolutions
USAGE = "clipx bench NAME, or clipx bench recipe=NAME [arms=a,b] [reference=ARM]"


@dataclass(kw_only=True)
class Options:
    """The options of `clipx bench`; all other arguments are settings of the arms."""

    recipe: str | None = setting(None, "recipe whose arms are compared")
    arms: list[str] = setting([], "arms to compare with the reference; empty: all")
    reference: str | None = setting(None, "arm to compare with; null: the first one")
    seconds: float = setting(600, "longest time of the benchmark", between(1, 1e6), unit="seconds")
    steps: int | None = setting(None, "most steps of each arm", AT_LEAST_1)
    out: str | None = setting(None, "folder of the results")


def bench(arguments: list[str]) -> None:
    """Run `clipx bench NAME`, or `clipx bench recipe=NAME [arms=a,b] [reference=ARM]`, with Options and settings."""
    options, others = take_options(arguments, Options, "bench")
    names, settings = split_positional(others)
    name, benchmark = _choose(names, options)
    arms = (benchmark.reference, *benchmark.arms)
    configs = {arm: compose_run([f"recipe={benchmark.recipe}", f"arm={arm}", *settings]) for arm in arms}
    given = {"arms": ",".join(options.arms), "reference": options.reference}
    chosen = [f"{key}={value}" for key, value in given.items() if value]
    out = Path(options.out or f"runs/bench/{_folder_name(name, [*chosen, *settings])}")
    out.mkdir(parents=True, exist_ok=True)  # before the benchmark, which may take ten minutes
    steps, conditions = _ready(configs, settings)
    conditions = f"{benchmark.recipe}, {conditions}"
    print(f"{conditions}; {', '.join(steps)} take turns for at most {options.seconds:g} s", file=sys.stderr, flush=True)
    most = options.steps or sys.maxsize
    costs, times = time_in_turns(steps, benchmark.reference, benchmark.bound, options.seconds, most)
    conditions += f", steps of each arm: {len(times[benchmark.reference])}"
    claims = [_claim(benchmark, costs, conditions)] if benchmark.claim else []
    claims += [benchmark.size(configs).row()] if benchmark.size else []
    _print(conditions, costs, benchmark.reference, times, claims)
    rows = [list(times), *zip(*times.values(), strict=True)]  # seconds; a row per block
    write_text(out / "times.csv", csv_text(rows))
    print(out / "times.csv")
    if claims:
        # The report decides a claim only from a benchmark without settings: a batch size or a device could otherwise be
        # chosen for its verdict.
        print(write_stated(out, claims, split_given(settings)[0]))


def _folder_name(name: str, given: list[str]) -> str:
    """Return the name of the default folder; a hash stands for arguments that are too long for a folder name."""
    whole = "-".join([name, *given]).replace("/", "_")
    return whole if len(whole.encode()) <= LONGEST_NAME else f"{name}-{content_hash(given)}"


def _choose(names: list[str], options: Options) -> tuple[str, Benchmark]:
    """Return name and benchmark: one of BENCHMARKS, or the user's comparison named after its recipe."""
    if len(names) + bool(options.recipe) != 1:
        raise UserError(f"give one of the names {', '.join(BENCHMARKS)}, or one recipe: {USAGE}")
    if names:
        found = lookup(BENCHMARKS, names[0], "clipx bench")
        if options.arms or options.reference:
            raise UserError(f"clipx bench {names[0]} has its own arms; {USAGE}")
        return names[0], found
    name = str(options.recipe)
    known = list(recipe(name).arms)
    if not known:
        raise UserError(f"recipe={name} has no arms to compare; clipx ls recipes lists recipes and their arms")
    reference = options.reference or known[0]
    arms = tuple(dict.fromkeys(one_of(arm, known, "arms") for arm in options.arms or known if arm != reference))
    if not arms:
        raise UserError(
            f"arms={reference} is the reference; allowed: {', '.join(arm for arm in known if arm != reference)}"
        )
    return name, Benchmark(name, one_of(reference, known, "reference"), arms)


def _ready(configs: Configs, settings: list[str]) -> tuple[Steps, str]:
    """Build and warm up all arms, halving the batch until they fit on the GPU; return steps and conditions in words."""
    import torch

    from clipx.utils.device import choose_device

    train = next(iter(configs.values())).train
    device, given = choose_device(train.device), {key_of(setting) for setting in settings}
    changes = {key: value for key, value in ON_CPU.items() if device.type == "cpu" and f"train.{key}" not in given}
    for key in dict.fromkeys(("batch_size", *changes)):
        if len(found := sorted({str(getattr(config.train, key)) for config in configs.values()})) > 1:
            raise UserError(f"the arms have different train.{key} ({', '.join(found)}): give train.{key}= for all")
    changed = replace(train, **changes)  # type: ignore[arg-type]
    size = changed.batch_size
    if "batch_size" in changes:
        size += -size % train.accumulation  # a multiple of the number of micro-batches
    while (steps := _warm_steps(configs, changes | {"batch_size": size}, device)) is None:
        size //= 2
        gc.collect()  # frees the models that did not fit
    batch = f"batch of {size}" + (f" instead of {train.batch_size}" if size < train.batch_size else "")
    where = f"cpu, threads: {torch.get_num_threads()}"
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    return steps, f"{batch}, {where}, {changed.precision}"


def _check_memory(configs: list[RunConfig]) -> None:
    """Raise UserError if the arms need more memory than is free: the kernel would kill the process without a message.

    All arms keep their weights, gradients and moments; the arm that does a step also needs the rest of its peak.
    """
    import torch

    from clipx.training.cost import count_step
    from clipx.utils.device import free_memory

    costs, free = [count_step(config) for config in configs], free_memory(torch.device("cpu"))
    kept = [sum(cost.memory.get(kind, 0) for kind in KEPT) for cost in costs]
    needed = sum(kept) + max(cost.peak - of_arm for cost, of_arm in zip(costs, kept, strict=True))
    if free is not None and needed > free:
        raise UserError(
            f"train.batch_size={configs[0].train.batch_size} with {len(configs)} arms needs {needed / 1e9:.1f} GB, but "
            f"{free / 1e9:.1f} GB are free; try a smaller batch or fewer arms"
        )


def _warm_steps(configs: Configs, changes: dict[str, Any], device: "torch.device") -> Steps | None:
    """Build the arms with changes of train.* and do the slower first steps; None if the GPU's memory is too small."""
    import torch

    from clipx.training.forecast import timed_steps

    try:
        changed = {arm: replace(config, train=replace(config.train, **changes)) for arm, config in configs.items()}
        if device.type == "cpu":
            _check_memory(list(changed.values()))
        steps = {arm: timed_steps(config, device) for arm, config in changed.items()}
        for step in [*steps.values()] * WARM_UP:
            step()
    except torch.OutOfMemoryError as error:
        if changes["batch_size"] == 1:
            raise UserError(f"one pair does not fit into the memory of the GPU; give fewer arms ({error})") from error
        return None
    return steps


def _claim(benchmark: Benchmark, costs: dict[str, RelativeStepTime], conditions: str) -> dict[str, Any]:
    """Return the row of claims.json for the claim on ratios of step times."""
    assert benchmark.bound is not None
    (claim,) = (claim for claim in CLAIMS if claim.id == benchmark.claim)
    names = {arm: f"ratio of step times {arm} / {benchmark.reference}" for arm in costs}
    return {
        "claim": claim.id,
        "statement": f"{claim.statement} ({conditions})",
        "measured": {names[arm]: f"{cost.ratio:.4f} {cost.interval}".strip() for arm, cost in costs.items()},
        "expected": dict.fromkeys(names.values(), f"<= {benchmark.bound:g}"),
        "verdict": overall([cost.verdict(benchmark.bound) for cost in costs.values()]),
    }


def _print(
    conditions: str, costs: dict[str, RelativeStepTime], reference: str, times: Times, claims: list[dict[str, Any]]
) -> None:
    console = stdout_console()
    console.print(conditions)
    table = Table("arm", "s a step", f"ratio to {reference}", "95% interval", box=None, pad_edge=False)
    table.add_row(reference, f"{median(times[reference]):.4g}")
    for arm, cost in costs.items():
        table.add_row(arm, f"{cost.seconds:.4g}", f"{cost.ratio:.4f}", cost.interval)
    console.print(table)
    for claim in claims:
        console.print(f"\n{claim['claim']}  {claim['verdict']}", style="bold")
        console.print(claim["statement"])
        table = Table("number", "measured", "expected", box=None, pad_edge=False)
        for name, measured in claim["measured"].items():
            number = measured if isinstance(measured, str) else f"{measured:.6g}"
            table.add_row(name, number, claim["expected"][name])
        console.print(table)
