"""Optional outputs of the run log besides log.jsonl: Weights & Biases and TensorBoard."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clipx.errors import UserError, one_line


def start_wandb(key: str, mode: str, **options: Any) -> Any:
    """Start or resume a W&B run.

    Args:
        key: name of the setting that holds `mode`, for the message.
        mode: online or offline.
        options: further arguments of wandb.init.

    Raises:
        UserError: there is no API key, or the server refuses the run.
    """
    import wandb

    try:
        return wandb.init(mode="online" if mode == "online" else "offline", **options)
    except wandb.errors.Error as error:
        advice = "run `wandb login` or set WANDB_API_KEY; or write offline and send it later with `wandb sync`"
        raise UserError(f"{key}={mode}: W&B did not start ({one_line(error)}): {advice}") from error


class TensorBoard:
    """Event files in a folder; a resumed run replaces the steps that it repeats."""

    def __init__(self, folder: Path, step: int) -> None:
        """`step`: number of steps done. Raises UserError: the package is not installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                "log.tensorboard=true needs the extra `tensorboard`: pip install -e '.[tensorboard]' in the checkout"
            ) from error
        self._writer: Any = SummaryWriter(folder, purge_step=step + 1 if step else None, flush_secs=10)

    def log(self, step: int, row: Mapping[str, Any]) -> None:
        """Write all numbers of a row: `loss`, `terms/clip`, `geometry/gap`, ..."""
        for name, value in numbers(row):
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write the buffered numbers and close the file."""
        self._writer.close()


def numbers(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested dictionaries as (a/b, value); lists and texts are left out."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)
