"""Log writers besides log.jsonl: Weights & Biases and TensorBoard. This module imports no torch, to load fast."""

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clipx.errors import UserError, one_line

WANDB_LOGIN = "run `wandb login` or set WANDB_API_KEY; or write offline and upload the run later with `wandb sync`"


def check_wandb(key: str, mode: str) -> None:
    """Raise UserError if W&B is needed but not installed, or if `mode` is online and this machine has no W&B API key.

    `key` is the setting that holds `mode`. Fast, because wandb is not imported. If W&B has a settings file here, no API
    key is required: `wandb.init` checks later.
    """
    if mode != "off" and find_spec("wandb") is None:
        raise UserError(f"{key}={mode} needs the extra `wandb`: pip install -e '.[wandb]' in the checkout")
    folders = (Path(os.environ.get("WANDB_CONFIG_DIR", "~/.config/wandb")).expanduser(), Path("wandb"))
    in_environment = any(os.environ.get(name) for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"))
    if mode != "online" or in_environment or any((folder / "settings").is_file() for folder in folders):
        return
    from requests.utils import get_netrc_auth  # as W&B does

    if get_netrc_auth(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")):
        return
    raise UserError(f"{key}=online needs an API key of W&B, and this machine has none: {WANDB_LOGIN}")


def start_wandb(key: str, mode: str, **options: Any) -> Any:
    """Start or resume a W&B run; `key` is the setting that holds `mode`, `options` are passed to wandb.init.

    Raises UserError: there is no API key, or the server refuses the run.
    """
    import wandb

    try:
        return wandb.init(mode="online" if mode == "online" else "offline", **options)
    except wandb.errors.Error as error:
        raise UserError(f"{key}={mode}: W&B did not start ({one_line(error)}): {WANDB_LOGIN}") from error


def open_tensorboard(folder: Path, last: int) -> Any:
    """Return a writer of event files in a folder; a resumed run replaces the steps after `last`, which it repeats.

    Raises UserError: the package is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError(
            "log.tensorboard=true needs the extra `tensorboard`: pip install -e '.[tensorboard]' in the checkout"
        ) from error
    return SummaryWriter(folder, purge_step=last + 1, flush_secs=10)


def numbers(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested dictionaries as ("key/inner key", value); lists and strings are left out."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)
