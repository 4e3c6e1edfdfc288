"""What a run was, in a reader's words: the settings and log entries that belong on the first screen."""

from typing import Any

from evaluation.runs.reader import Run

MISSING = "-"


def facts(run: Run) -> dict[str, str]:
    """Label -> value of the known settings; `-` for what the run does not say."""
    return {
        "Recipe": _setting(run, "recipe"),
        "Data": _setting(run, "data", "name"),
        "Image tower": _setting(run, "model", "image", "name"),
        "Text tower": _setting(run, "model", "text", "name"),
        "Objective": objective(run),
        "Temperature": _temperature(run),
        "Steps": _steps(run),
        "Batch size": _setting(run, "train", "batch_size"),
        "Samples seen": _samples(run),
        "Training time": duration(training_seconds(run)),
        "Device": _setting(run, "train", "device") if not run.environment else _device(run.environment),
        "Claims": _plain(_get(run.config, "claims")),
    }


def training_seconds(run: Run) -> float | None:
    """Time spent in training steps, pauses between a kill and a resume left out: samples over throughput.

    Lines that are of no training step, with the geometry or an evaluation alone, say nothing about it.
    """
    seconds, before = 0.0, 0.0
    for line in run.log:
        samples, speed = number(line, "samples"), number(line, "images_per_s")
        if samples is not None and speed:
            seconds += max(0.0, samples - before) / speed
            before = samples
    return seconds or None


def last(run: Run, key: str) -> float | None:
    """The last number of that name in the log; not every line has it."""
    return next((value for line in reversed(run.log) if (value := number(line, key)) is not None), None)


def number(line: dict[str, Any], key: str) -> float | None:
    """A number of a log line; None where it is missing or is none."""
    value = line.get(key)
    return float(value) if isinstance(value, int | float) else None


def duration(seconds: float | None) -> str:
    """`58 s`, `2 min 5 s`, `3 h 7 min`."""
    if seconds is None:
        return MISSING
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def flat(tree: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as `a.b.c` and value pairs, in their order."""
    if isinstance(tree, dict):
        return [pair for key, value in tree.items() for pair in flat(value, f"{prefix}.{key}".lstrip("."))]
    return [(prefix, _plain(tree))]


def _get(tree: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(key)
    return tree


def _setting(run: Run, *keys: str) -> str:
    return _plain(_get(run.config, *keys))


def _plain(value: Any) -> str:
    if value is None or value in ([], {}, ""):
        return MISSING
    if isinstance(value, list):
        return ", ".join(_plain(one) for one in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def objective(run: Run) -> str:
    """`clip + 0.1 positive (gamma=0.9)`."""
    terms = _get(run.config, "objective")
    if not isinstance(terms, dict) or not terms:
        return MISSING
    return " + ".join(_term(str(name), parameters or {}) for name, parameters in terms.items())


def _term(name: str, parameters: dict[str, Any]) -> str:
    weight = parameters.get("weight", 1)
    others = ", ".join(f"{key}={value}" for key, value in parameters.items() if key != "weight")
    return (f"{weight} " if weight != 1 else "") + name + (f" ({others})" if others else "")


def _temperature(run: Run) -> str:
    kind, tau = _setting(run, "temperature", "kind"), _setting(run, "temperature", "tau")
    if tau == MISSING:
        return kind
    return f"{kind}, from τ = {tau}" if kind == "learned" else f"{kind}, τ = {tau}"


def _steps(run: Run) -> str:
    done = last(run, "step")
    return MISSING if done is None else f"{done:,.0f}"


def _samples(run: Run) -> str:
    seen = last(run, "samples")
    return MISSING if seen is None else f"{seen:,.0f}"


def _device(environment: dict[str, Any]) -> str:
    return _plain(environment.get("device"))
