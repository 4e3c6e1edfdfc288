"""Main settings of a run and numbers from its log, formatted for reports."""

import math
from typing import Any

from clipx.data.sampler import num_train
from clipx.errors import UserError
from clipx.run.directory import identity_keys, load_config
from evaluation.runs.reader import Run

MISSING = "-"
SAMPLE_FLOPS: dict[str, float] = {}  # settings -> FLOPs of a pair; counting those of new settings takes about a second


def describe(run: Run) -> dict[str, str]:
    """Return label -> value of the main settings; `-` for unknown values."""
    device = run.environment.get("device") if run.environment else setting(run, "train", "device")
    return {
        "Recipe": _text(setting(run, "recipe")),
        "Data": _text(setting(run, "data", "name")),
        "Image tower": _text(setting(run, "model", "image", "name")),
        "Text tower": _text(setting(run, "model", "text", "name")),
        "Objective": objective(run),
        "Temperature": _temperature(run),
        "Steps": _count(last(run, "step")),
        "Batch size": _text(setting(run, "train", "batch_size")),
        "Samples seen": _count(last(run, "samples")),
        "Training time": duration(training_seconds(run)),
        "Device": _text(device),
        "Claims": _text(setting(run, "claims")),
    }


def training_seconds(run: Run) -> float | None:
    """Return the time spent in training steps: logged samples divided by throughput.

    Pauses between a kill and a resume are not included. Log lines without a training step are skipped.
    """
    seconds, before = 0.0, 0.0
    for line in run.log:
        samples, speed = number(line, "samples"), number(line, "images_per_s")
        if samples is not None and speed:
            seconds += max(0.0, samples - before) / speed
            before = samples
    return seconds or None


def processor_hours(run: Run) -> float:
    """Return the hours spent in training steps, times the number of processes; 0 if unknown."""
    return (training_seconds(run) or 0.0) * float(run.environment.get("processes") or 1) / 3600


def training_flops(run: Run) -> float:
    """Return the FLOPs of the towers in the whole training; 0 if the run's towers cannot be built here."""
    parts = [("model",), *(("train", name) for name in ("batch_size", "accumulation", "grad_checkpointing"))]
    terms = [*(setting(run, "objective") or {})]  # negclip has twice the texts
    key = repr([*(setting(run, *part) for part in parts), terms])
    if key not in SAMPLE_FLOPS:
        SAMPLE_FLOPS[key] = _sample_flops(run)
    return SAMPLE_FLOPS[key] * (last(run, "samples") or 0.0)


def _sample_flops(run: Run) -> float:
    from clipx.training.cost import single_process_cost  # slow to import

    try:
        config = load_config(run.path)
        return single_process_cost(config).tower_flops / config.train.batch_size
    except UserError:
        return 0.0


def pairs_in_epoch(run: Run) -> int | None:
    """Return the number of training pairs of an epoch, without those held out; None if the run does not tell it."""
    pairs = str(run.environment.get("data")).partition(":")[0]  # PAIRS:DIGEST, except for streams
    if pairs.isdigit():
        return num_train(int(pairs), float(setting(run, "data", "held_out") or 0))
    found = setting(run, "data", "num_samples")
    return found if isinstance(found, int) else None


def unfinished(run: Run) -> str:
    """Return "step 120 of 470" for a run whose log ends before its last step; "" for any other or if this is unknown.

    Diverged runs are not unfinished.
    """
    samples, epochs, batch_size = (setting(run, "train", key) for key in ("samples", "epochs", "batch_size"))
    in_epoch, step = pairs_in_epoch(run), last(run, "step")
    if run.diverged or step is None or not isinstance(batch_size, int):
        return ""
    if samples is not None:
        steps = samples // batch_size
    elif epochs is not None and in_epoch is not None:
        steps = epochs * (in_epoch // batch_size)
    else:
        return ""
    return f"step {step:,.0f} of {steps:,}" if step < steps else ""


def last(run: Run, key: str) -> float | None:
    """Return the last logged number with this key; None if no line has one."""
    return next((value for line in reversed(run.log) if (value := number(line, key)) is not None), None)


def number(line: dict[str, Any], key: str) -> float | None:
    """Return a number of a log line; None if it is missing or not a number."""
    value = line.get(key)
    return float(value) if isinstance(value, int | float) else None


def digits(value: float, sign: str = "") -> str:
    """Format with three significant digits, above 999 as an integer: 0.500, -0.0123, 1,235; sign="+" adds a plus."""
    if not math.isfinite(value):
        return f"{value:{sign}}"
    if abs(value) < 5e-7:  # a rounding error
        return "0"
    return f"{value:{sign},.0f}" if abs(value) >= 999.5 else f"{value:{sign}#.3g}".rstrip(".")


def four_decimals(value: float) -> str:
    """Format an effect with four decimals; a smaller one, which would lose all digits, as -3.2e-05. 0 has no sign."""
    if abs(value) < 1e-12:  # a rounding error
        return "0.0000"
    return f"{value:.1e}" if abs(value) < 5e-5 else f"{value:.4f}"


def duration(seconds: float | None) -> str:
    """Format a duration: `58 s`, `2 min 5 s`, `3 h 7 min`."""
    if seconds is None:
        return MISSING
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def flat(tree: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Flatten nested settings to (`a.b.c`, value) pairs in their order."""
    if isinstance(tree, dict):
        return [pair for key, value in tree.items() for pair in flat(value, f"{prefix}.{key}".lstrip("."))]
    return [(prefix, _text(tree))]


def settings_text(run: Run, prefix: str = "", without: tuple[str, ...] = ()) -> str:
    """Return the settings that determine the results, except names, seed and those in `without`.

    `prefix`: only settings whose keys start with it.
    """
    keys = {*identity_keys()} - {"name", "recipe", "arm", "seed", *without}
    settings = [(key, value) for key, value in flat(run.config) if key in keys or key.startswith("objective.")]
    return str([(key, value) for key, value in settings if key.startswith(prefix)])


def objective(run: Run) -> str:
    """Describe the objective: `clip + 0.1 positive (gamma=0.9)`."""
    terms = setting(run, "objective")
    if not isinstance(terms, dict) or not terms:
        return MISSING
    return " + ".join(_term(str(name), parameters or {}) for name, parameters in terms.items())


def _term(name: str, parameters: dict[str, Any]) -> str:
    weight = parameters.get("weight", 1)
    others = ", ".join(f"{key}={value}" for key, value in parameters.items() if key != "weight")
    return (f"{weight} " if weight != 1 else "") + name + (f" ({others})" if others else "")


def _temperature(run: Run) -> str:
    kind, tau = (_text(setting(run, "temperature", key)) for key in ("kind", "tau"))
    if tau == MISSING:
        return kind
    return f"{kind}, from τ = {tau}" if kind == "learned" else f"{kind}, τ = {tau}"


def setting(run: Run, *keys: str) -> Any:
    """Return a value of the run's config by its path of keys; None if it is not set."""
    value: Any = run.config
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    if value is None or value in ([], {}, ""):
        return MISSING
    if isinstance(value, list):
        return ", ".join(_text(one) for one in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _count(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"
