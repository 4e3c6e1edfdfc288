"""A training step: `train_step` is its whole story, `log_row` what the log tells of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from clipx import distributed
from clipx.training import buffers, gradients, optimizer
from clipx.training.setup import TrainComponents
from clipx.types import Batch, Embeddings, Loss, Progress


def train_step(parts: TrainComponents, batch: Batch, progress: Progress) -> dict[str, Any]:
    """One update: towers, gather, objective in float32, backward, clip, optimizer, bounds of the temperature.

    Without a finite loss and gradient nothing is updated. Returns the step's numbers for the log.
    """
    state = parts.state
    parts.laps.start()
    lr = parts.learning_rate(progress)
    optimizer.set_lr(state.optimizer, lr)
    state.optimizer.zero_grad()
    parts.parallel.train()
    sizes = distributed.all_gather_sizes(len(batch.sample_id))
    sample_id, label = distributed.gather(batch.sample_id, sizes), distributed.gather(batch.label, sizes)
    rows = state.table.read(sample_id)

    def loss_of(image: Tensor, text: Tensor, scale: Tensor, bias: Tensor | None) -> Loss:
        """Gathers this rank's embeddings and returns the loss over the global batch."""
        image, text = distributed.gather(image.float(), sizes), distributed.gather(text.float(), sizes)
        embeddings = Embeddings(image, text, scale.float(), sample_id, label, bias)
        return parts.objective(parts.mix(embeddings, progress.step), rows, progress)

    put_back = buffers.remember(parts.model)
    loss, scale = gradients.backward(parts, batch, progress, loss_of)
    norm = _update(parts, loss, sample_id, put_back)
    parts.laps.end("optimizer")
    return {"loss": loss.total.detach(), "terms": loss.terms, "scale": scale, "lr": lr, "grad_norm": norm}


def _update(parts: TrainComponents, loss: Loss, sample_id: Tensor, put_back: Callable[[], None]) -> Tensor:
    """Clips, then applies the update only if loss and gradient norm are finite; returns that norm, before clipping.

    Otherwise running statistics are restored too: one NaN in them would never leave. In fp16 an overflowing gradient is
    how GradScaler finds its scale, so it skips the step without counting as bad, until the scale has reached 1.
    """
    state, scaler = parts.state, parts.state.scaler
    scaler.unscale_(state.optimizer)
    norm = nn.utils.clip_grad_norm_(parts.model.parameters(), parts.config.train.grad_clip or float("inf"))
    finite_loss, finite_norm = torch.stack([loss.total.detach(), norm]).isfinite().tolist()  # equal on all ranks
    if finite_loss and finite_norm:
        scaler.step(state.optimizer)
        parts.model.temperature.clamp_()
        if state.average:
            state.average.update(parts.model)
        state.table.write(sample_id, loss.rows)
        parts.objective.end_step(state.table)
        parts.bad_steps = 0
    else:
        put_back()
        if not finite_loss or scaler.get_scale() <= 1:  # 1 as well without a scaler
            parts.bad_steps += 1
    scaler.update()
    return norm


def log_row(parts: TrainComponents, row: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """A step's numbers as a line of log.jsonl; with per-sample columns, their quantiles."""
    scale, scaler = float(row["scale"]), parts.state.scaler
    return {
        "epoch": progress.epoch,
        "samples": (progress.step + 1) * parts.config.train.batch_size,
        "loss": float(row["loss"]),
        "terms": {name: float(value) for name, value in row["terms"].items()},
        "scale": scale,
        "tau": 1 / scale,
        "lr": row["lr"],
        "grad_norm": float(row["grad_norm"]),
        **({"grad_scale": scaler.get_scale()} if scaler.is_enabled() else {}),
        **({"columns": parts.state.table.quantiles()} if parts.objective.columns else {}),
        **({"skipped": parts.bad_steps} if parts.bad_steps else {}),
        **({"memory_gb": _peak_memory(parts.device)} if parts.device.type == "cuda" else {}),
    }


def count_memory(device: torch.device) -> None:
    """A run begins: `memory_gb` counts from here, not from the start of a process that does several in turn."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak_memory(device: torch.device) -> float:
    """Most memory that tensors of the run took, 1e9 bytes."""
    return round(torch.cuda.max_memory_allocated(device) / 1e9, 3)
