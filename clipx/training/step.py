"""A training step: `train_step` does the update, `log_row` turns its numbers into a log line."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clipx import distributed
from clipx.training import gradients, optimizer
from clipx.training.setup import TrainComponents
from clipx.types import Batch, Embeddings, Loss, Progress, TeacherEmbeddings
from clipx.utils.device import autocast


def train_step(components: TrainComponents, batch: Batch, progress: Progress) -> dict[str, Any]:
    """Do one update: towers, gather, objective in float32, backward, clip gradients, optimizer, clamp temperature.

    If the loss or the gradient is not finite, nothing is updated. Returns the step's numbers for `log_row`.
    """
    state = components.state
    components.timer.start()
    lr = components.learning_rate(progress)
    optimizer.set_lr(state.optimizer, lr)
    state.optimizer.zero_grad()
    if not components.parallel.wrapped.training:  # only in the first step: evaluations restore the mode
        components.parallel.wrapped.train()
    sizes = distributed.all_gather_sizes(len(batch.sample_id))
    sample_id, label = distributed.gather(torch.stack([batch.sample_id, batch.label], dim=1), sizes).unbind(dim=1)
    group = None if batch.group is None else distributed.gather(batch.group, sizes)
    rows, part = state.table.read(sample_id), distributed.part(sizes)
    teacher = _teacher_embeddings(components, batch, sizes)
    with_metadata = partial(Embeddings, sample_id=sample_id, label=label, part=part, group=group, teacher=teacher)
    if batch.negative_text is not None:  # the text tower embeds captions and negative captions in one call
        batch = replace(batch, text=torch.cat([batch.text, batch.negative_text]))

    def loss_fn(image: Tensor, text: Tensor, scale: Tensor, bias: Tensor | None) -> Loss:
        """Gather this rank's embeddings and return the loss over the global batch."""
        image = distributed.gather(image.float(), sizes)
        text, *negatives = (distributed.gather(side, sizes) for side in torch.split(text.float(), len(batch.sample_id)))
        negative_text = negatives[0] if negatives else None
        embeddings = with_metadata(image, text, scale.float(), bias=bias, negative_text=negative_text)
        return state.objective(components.mix(embeddings, progress.step), rows, progress)

    restore_buffers = gradients.snapshot_buffers(state.model)
    loss, scale = gradients.backward(components, batch, progress, loss_fn)
    grad_norm = _update(components, loss, sample_id, restore_buffers)
    components.timer.end_phase("optimizer")
    return {"loss": loss.total.detach(), "terms": loss.terms, "scale": scale, "lr": lr, "grad_norm": grad_norm}


def _teacher_embeddings(components: TrainComponents, batch: Batch, sizes: list[int]) -> TeacherEmbeddings | None:
    """Embed this rank's pairs with the teacher, in micro-batches, and gather the embeddings."""
    teacher, config = components.teacher, components.config.train
    if teacher is None:
        return None
    with autocast(config.precision, components.device):
        image, text = teacher(batch, -(-len(batch.image) // config.accumulation))
    return TeacherEmbeddings(distributed.gather(image, sizes), distributed.gather(text, sizes), teacher.scale)


def _update(components: TrainComponents, loss: Loss, sample_id: Tensor, restore_buffers: Callable[[], None]) -> Tensor:
    """Clip the gradient, update if loss and gradient norm are finite, and return the norm [] before clipping.

    A skipped step also restores running statistics, because they would keep a NaN permanently. In fp16, GradScaler
    finds its scale by overflowing gradients, so an overflow counts as a bad step only once the scale has reached 1.
    """
    state, scaler = components.state, components.state.scaler
    scaler.unscale_(state.optimizer)
    grad_norm = components.parallel.clip_grad_norm_(components.config.train.grad_clip)
    finite_loss, finite_norm = torch.stack([loss.total.detach(), grad_norm]).isfinite().tolist()  # same on all ranks
    if finite_loss and finite_norm:
        scaler.step(state.optimizer)
        state.model.temperature.clamp_()
        if state.ema is not None:
            state.ema.update(state.model)
        state.table.write(sample_id, loss.rows)
        state.objective.end_step(state.table)
        components.bad_steps = 0
    else:
        restore_buffers()
        if not finite_loss or scaler.get_scale() <= 1:  # a disabled scaler returns 1
            components.bad_steps += 1
    scaler.update()
    return grad_norm


def log_row(components: TrainComponents, numbers: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Return the log.jsonl fields for the numbers of a step, including quantiles of the per-sample columns.

    `memory_gb` is the peak memory of tensors on a GPU, in units of 1e9 bytes.
    """
    state, device, scale = components.state, components.device, float(numbers["scale"])
    on_gpu = device.type == "cuda"
    return {
        "epoch": progress.epoch,
        "samples": (progress.step + 1) * components.config.train.batch_size,
        "loss": float(numbers["loss"]),
        "terms": {name: float(value) for name, value in numbers["terms"].items()},
        "scale": scale,
        "tau": 1 / scale,
        "lr": numbers["lr"],
        "grad_norm": float(numbers["grad_norm"]),
        **({"grad_scale": state.scaler.get_scale()} if state.scaler.is_enabled() else {}),
        **({"columns": state.table.quantiles()} if state.objective.columns else {}),
        **({"skipped": components.bad_steps} if components.bad_steps else {}),
        **({"memory_gb": round(torch.cuda.max_memory_allocated(device) / 1e9, 3)} if on_gpu else {}),
    }


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak that `memory_gb` reports, because a process may train several runs in turn."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
