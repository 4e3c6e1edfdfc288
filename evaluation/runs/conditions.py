"""Conditions that runs must share to be compared, and the settings of their methods: objective, temperature, ..."""

from collections import Counter
from dataclasses import asdict

from clipx.config.schema import RunConfig
from clipx.run.directory import identity_keys
from evaluation.runs.description import flat, objective
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

CONDITIONS = {  # settings that compared runs must share, in addition to those of the data
    "model.embed_dim",
    *(f"model.{side}.{key}" for side in ("image", "text") for key in ("name", "pretrained", "frozen")),
    "model.init",
    "model.image.size",
    "model.text.context_length",
    *(f"train.{key}" for key in ("epochs", "samples", "batch_size")),
}
KEYWORDS = ("data.keywords", "data.keyword_digits")  # not conditions: they label pairs without changing them
NAMES = ("name", "recipe", "arm", "seed", "objective")  # neither conditions nor listed as settings of a method


def training_conditions(run: Run) -> dict[str, str]:
    """Return setting -> value of the conditions of a run; "training samples" is the fingerprint of its data."""
    settings = _all_settings(run)
    found = {key: settings[key] for key in identity_keys() if _is_condition(key, settings)}
    samples = run.environment.get("data")  # hash of the training data: the files in data.root may change
    return found | ({"training samples": str(samples)} if samples else {})


def settings_of_method(run: Run) -> tuple[str, dict[str, str]]:
    """Return the objective, and the other settings in which compared methods may differ."""
    settings = _all_settings(run)
    keys = [key for key in identity_keys() if key not in NAMES and not key.startswith("data.scenes.")]
    return objective(run), {key: settings[key] for key in keys if not _is_condition(key, settings)}


def describe_methods(groups: list[RunGroup]) -> list[str]:
    """Return each group's objective, and its settings that differ from the most common value."""
    by_group = [settings_of_method(group.runs[0])[1] for group in groups]
    all_keys = {key: None for settings in by_group for key in settings}
    usual = {key: Counter(settings.get(key) for settings in by_group).most_common(1)[0][0] for key in all_keys}
    return [
        "; ".join([
            objective(group.runs[0]),
            *(f"{key}={value}" for key, value in settings.items() if value != usual[key]),
        ])
        for group, settings in zip(groups, by_group, strict=True)
    ]  # fmt: skip


def differing(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Return the names of the settings with different values."""
    return [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]


def _all_settings(run: Run) -> dict[str, str]:
    """Return dotted name -> value of all settings; defaults for settings that an older run lacks."""
    return dict(flat(asdict(RunConfig()))) | dict(flat(run.config))


def _is_condition(key: str, settings: dict[str, str]) -> bool:
    if key.startswith("data.scenes."):
        return settings.get("data.source") == "scenes"
    return key in CONDITIONS or (key.startswith("data.") and key not in KEYWORDS)
