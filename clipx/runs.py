"""The run directory `<runs>/<name>/s<seed>/`; its config.yaml is all that resume, eval and report read."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from clipx.atomic import write_text
from clipx.config import RunConfig
from clipx.errors import UserError


def directory(config: RunConfig) -> Path:
    """Where a run lives."""
    return Path(config.runs) / config.name / f"s{config.seed}"


def claim(config: RunConfig) -> Path:
    """The run directory with this config in it; a directory that holds another config is refused.

    Raises:
        UserError: the settings that differ, old -> new.
    """
    run = directory(config)
    if (run / "log.jsonl").exists() or (run / "checkpoints").exists():  # else it never got to its first step
        old = load_config(run)
        changed = [
            f"{key}: {_at(old, key)} -> {_at(config, key)}"
            for key in _bound_keys(config)
            if _at(old, key) != _at(config, key)
        ]
        if changed:
            raise UserError(
                f"{run} holds a run with other settings ({'; '.join(changed)}): "
                "give this one another name=, or remove that directory"
            )
    write_text(run / "config.yaml", OmegaConf.to_yaml(OmegaConf.structured(config)))
    return run


def load_config(run: Path) -> RunConfig:
    """The config of a run directory.

    Raises:
        UserError: no or an unreadable config.yaml.
    """
    path = run / "config.yaml"
    if not path.is_file():
        raise UserError(f"{run} is no run directory: it has no config.yaml")
    try:
        merged = OmegaConf.merge(OmegaConf.structured(RunConfig), OmegaConf.load(path))
        config = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    assert isinstance(config, RunConfig)
    return config


def _bound_keys(node: Any, prefix: str = "") -> list[str]:
    """Dotted names of all settings that change what a run computes."""
    keys = []
    for f in fields(node):
        if f.metadata.get("free"):
            continue
        value = getattr(node, f.name)
        keys += _bound_keys(value, f"{prefix}{f.name}.") if is_dataclass(value) else [f"{prefix}{f.name}"]
    return keys


def _at(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config
