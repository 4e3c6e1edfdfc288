"""Describe a run for reports: main settings, the conditions that compared runs must share, cost; format numbers."""

import math
from dataclasses import asdict, replace
from typing import Any

from clipx.config.presets import trained_part
from clipx.config.schema import TowerConfig
from clipx.data.sampler import num_train, pairs_of
from clipx.errors import UserError
from clipx.run.folder import RunFolder, identity_keys
from clipx.utils.terminal import duration
from evaluation.runs.reader import Run

MISSING = "-"
SAMPLE_FLOPS: dict[str, float] = {}  # settings -> FLOPs of a pair; counting those of new settings takes about a second


CONDITIONS = {  # settings that compared runs must share, in addition to those of the data
    "model.embed_dim",
    *(
        f"model.{side}.{key}"
        for side in ("image", "text")
        for key in ("name", "pretrained", "frozen", "trainable_blocks", "lora")
    ),
    "model.init",
    "model.image.size",
    "model.text.context_length",
    *(f"train.{key}" for key in ("epochs", "samples", "batch_size")),
}
KEYWORDS = ("data.keywords", "data.keyword_digits")  # not conditions: they label pairs without changing them
NAMES = ("name", "recipe", "arm", "seed", "objective")  # neither conditions nor listed as settings of a method


def describe(run: Run) -> dict[str, str]:
    """Return label -> value of the main settings; `-` for unknown values."""
    config = run.config
    settings = {
        "Recipe": config.recipe,
        "Data": config.data.name,
        "Image tower": _tower(config.model.image),
        "Text tower": _tower(config.model.text),
        "Objective": objective(run),
        "Temperature": _temperature(run) if run.has_config else None,
        "Steps": _count(last(run, "step")),
        "Batch size": config.train.batch_size or None,
        "Samples seen": _count(last(run, "samples")),
        "Training time": duration(training_seconds(run)),
        "Device": run.environment.get("device") if run.environment or not run.has_config else config.train.device,
        "Claims": config.claims,
    }
    return {label: _text(value) for label, value in settings.items()}


def _tower(tower: TowerConfig) -> str:
    """Return a tower's name, with what is trained of it if that is not the whole tower."""
    return ", ".join(filter(None, (tower.name, trained_part(tower))))


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


def training_flops(run: Run) -> float:
    """Return the FLOPs of the towers in the whole training; 0 if the run's towers cannot be built here."""
    train = run.config.train
    twice = "negclip" in run.config.objective  # with the negative captions, the text tower has twice the texts
    key = repr([run.config.model, train.batch_size, train.accumulation, train.grad_checkpointing, twice])
    if key not in SAMPLE_FLOPS:
        SAMPLE_FLOPS[key] = _sample_flops(run, {"negclip" if twice else "clip": {}})
    return SAMPLE_FLOPS[key] * (last(run, "samples") or 0.0)


def _sample_flops(run: Run, objective: dict[str, Any]) -> float:
    from clipx.training.cost import count_step  # slow to import

    try:
        config = replace(RunFolder(run.path).load_config(), objective=objective)
        return count_step(config).tower_flops / config.train.batch_size
    except UserError:
        return 0.0


def pairs_in_epoch(run: Run) -> int | None:
    """Return the number of training pairs of an epoch, without those held out; None if the run does not tell it."""
    pairs, data = pairs_of(run.environment.get("data")), run.config.data
    return data.num_samples if pairs is None else num_train(pairs, data.held_out)


def unfinished(run: Run) -> str:
    """Return "step 120 of 470" for a run whose log ends before its last step; "" for any other or if this is unknown.

    Runs whose results say that they diverged are not unfinished.
    """
    train, in_epoch, step = run.config.train, pairs_in_epoch(run), last(run, "step")
    if run.diverged or step is None or not train.batch_size:
        return ""
    if train.samples is not None:
        steps = train.samples // train.batch_size
    elif train.epochs is not None and in_epoch is not None:
        steps = train.epochs * (in_epoch // train.batch_size)
    else:
        return ""
    if step >= steps:
        return ""
    ended = ", diverged; clipx eval records it" if RunFolder(run.path).divergence() else ""
    return f"step {step:,.0f} of {steps:,}{ended}"


def without_effect(run: Run) -> list[str]:
    """Return the parts of a method that had no effect in this run, by its settings and its log; [] without a log.

    A method without one of its parts is another method than its name says.
    """
    config, steps = run.config, [line for line in run.log if number(line, "loss") is not None]
    if not steps:
        return []
    columns = steps[-1].get("columns", {})
    zeta = [quantiles for name, quantiles in columns.items() if "_zeta_" in name]
    taus = [tau for line in steps if (tau := number(line, "tau"))]
    parts = {
        "zeta was never updated": bool(zeta) and all(quantiles[0] == quantiles[-1] for quantiles in zeta),
        "no pair was seen twice, so nothing was averaged over its visits": number(steps[-1], "epoch") == 0
        and any(name.endswith("_seen") for name in columns),
        "no step mixed the modalities": config.mixing.kind != "none" and not _has_mixed(run),
        "the learned temperature never moved": config.temperature.kind == "learned"
        and len(taus) > 1
        and all(math.isclose(tau, taus[0], rel_tol=1e-6) for tau in taus),
    }
    parts |= {f"the term {name} has weight 0": of.get("weight") == 0 for name, of in config.objective.items()}
    return [text for text, found in parts.items() if found]


def _has_mixed(run: Run) -> bool:
    """Return True if a step of the run has mixed the modalities: the draws depend on seed and step only."""
    from clipx.training.modality_mixing import STREAM, mixes  # imports torch
    from clipx.utils.rng import generator

    seed, probability = run.config.seed, run.config.mixing.probability
    steps = range(int(last(run, "step") or 0))
    return any(mixes(probability, generator(seed, step, STREAM)) for step in steps)


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


def percent(value: float, sign: str = "") -> str:
    """Format a share in per cent with two decimals: 12.30; sign="+" adds a plus. 0 has no sign."""
    text = f"{100 * value:{sign}.2f}"
    return "0.00" if text.strip("+-") == "0.00" else text


def four_decimals(value: float) -> str:
    """Format an effect with four decimals; a smaller one, which would lose all digits, as -3.2e-05. 0 has no sign."""
    if abs(value) < 1e-12:  # a rounding error
        return "0.0000"
    return f"{value:.1e}" if abs(value) < 5e-5 else f"{value:.4f}"


def flat(tree: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Flatten nested settings to (`a.b.c`, value) pairs in their order."""
    if isinstance(tree, dict):
        return [pair for key, value in tree.items() for pair in flat(value, f"{prefix}.{key}".lstrip("."))]
    return [(prefix, _text(tree))]


def training_conditions(run: Run) -> dict[str, str]:
    """Return setting -> value of the conditions of a run; "training samples" is the fingerprint of its data."""
    settings = all_settings(run)
    found = {key: settings[key] for key in identity_keys() if _is_condition(key, settings)}
    samples = run.environment.get("data")  # hash of the training data: the files in data.root may change
    return found | ({"training samples": str(samples)} if samples else {})


def settings_of_method(run: Run) -> tuple[str, dict[str, str]]:
    """Return the objective, and the other settings in which compared methods may differ."""
    settings = all_settings(run)
    keys = [key for key in identity_keys() if key not in NAMES and not key.startswith("data.scenes.")]
    return objective(run), {key: settings[key] for key in keys if not _is_condition(key, settings)} | plugin_code(run)


def plugin_code(run: Run) -> dict[str, str]:
    """Return `plugins.NAME` -> hash of the file with which the run was trained: an edited plug-in is another method."""
    return {f"plugins.{name}": str(digest)[:8] for name, digest in run.environment.get("plugins", {}).items()}


def differing(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Return the names of the settings with different values."""
    return [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]


def _is_condition(key: str, settings: dict[str, str]) -> bool:
    if key.startswith("data.scenes."):
        return settings.get("data.source") == "scenes"
    return key in CONDITIONS or (key.startswith("data.") and key not in KEYWORDS)


def data_settings(run: Run) -> str:
    """Return the settings of the data that determine the results, as one text."""
    settings = all_settings(run)
    return str([(key, settings[key]) for key in identity_keys() if key.startswith("data.")])


def all_settings(run: Run) -> dict[str, str]:
    """Return dotted name -> value of all settings, as text."""
    return dict(flat(asdict(run.config)))


def objective(run: Run) -> str:
    """Describe the objective: `clip + 0.1 positive (gamma=0.9)`."""
    return " + ".join(_term(name, parameters) for name, parameters in run.config.objective.items()) or MISSING


def _term(name: str, parameters: dict[str, Any]) -> str:
    weight = parameters.get("weight", 1)
    others = ", ".join(f"{key}={value}" for key, value in parameters.items() if key != "weight")
    return (f"{weight} " if weight != 1 else "") + name + (f" ({others})" if others else "")


def _temperature(run: Run) -> str:
    kind, tau = run.config.temperature.kind, run.config.temperature.tau
    return f"{kind}, from τ = {tau}" if kind == "learned" else f"{kind}, τ = {tau}"


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
