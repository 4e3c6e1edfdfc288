"""A training step: `train_step` does the update, `log_row` turns its numbers into a log line.

The gradient is computed in one pass, or in two over micro-batches, with all negatives of the batch
(train.accumulation). Two passes, with N micro-batches on each rank (gradient cache: Gao et al. 2021, "Scaling Deep
Contrastive Learning Batch Size under Memory Limited Setup"):

    1. Embed all micro-batches without keeping activations.
    2. Compute the objective of the global batch and its gradient with respect to embeddings, scale and bias.
    3. Embed each micro-batch again and backpropagate its share of that gradient through the towers.

The sum is the gradient of the large batch, because an embedding depends on its own sample only. Batch statistics are
the exception: they cover one micro-batch, on one rank or (train.sync_batchnorm) on all ranks. Random draws in the
towers (dropout) are seeded by (seed, step, rank, micro-batch), so both passes and a resumed run draw equal numbers.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from timm.utils.model_ema import ModelEmaV3
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from clipx import distributed
from clipx.objectives.base import Rows
from clipx.training import optimizer
from clipx.training.setup import TrainComponents
from clipx.types import Batch, Embeddings, Loss, Progress, TeacherEmbeddings
from clipx.utils import rng
from clipx.utils.device import autocast, on_host, tf32
from clipx.utils.matmul import loss_precision

STREAM = 0x544F57  # separates the towers' random draws from other draws seeded by (seed, step)
OPTIMIZER_STREAM = 0x4F5054  # the same for the optimizer's draws (timm:kron)

Outputs = tuple[Tensor, Tensor, Tensor, Tensor | None]  # image [b, E], text [b, E], scale [], bias []
Gradients = tuple[Tensor, ...]  # with respect to the outputs, or to the first ones only
LossFn = Callable[..., Loss]  # outputs that are not None -> loss of the global batch


def train_step(components: TrainComponents, batch: Batch, progress: Progress) -> dict[str, Any]:
    """Do one update: towers, gather, objective in float32, backward, clip gradients, optimizer, clamp temperature.

    If the loss or the gradient is not finite, weights and per-sample values stay. Returns the numbers for `log_row`.
    """
    state = components.state
    components.timer.start()
    lr = components.learning_rate(progress)
    optimizer.set_lr(state.optimizer, lr)
    state.optimizer.zero_grad()
    # ids, labels and groups stay in CPU memory, so that no step waits for the device to read one
    columns = [batch.sample_id, batch.label, *(() if batch.group is None else (batch.group,))]
    most = -(-components.config.train.batch_size // distributed.world_size())
    sizes, (sample_id, label, *groups) = distributed.gather_on_host([on_host(column) for column in columns], most)
    group = groups[0] if groups else None
    rows, part = state.table.read(sample_id, components.device), distributed.part(sizes)
    teacher = _teacher_embeddings(components, batch, sizes)
    with_metadata = partial(Embeddings, sample_id=sample_id, label=label, part=part, group=group, teacher=teacher)
    if batch.negative_text is not None:  # the text tower embeds captions and negative captions in one call
        batch = replace(batch, text=torch.cat([batch.text, batch.negative_text]))

    def loss_fn(image: Tensor, text: Tensor, scale: Tensor, bias: Tensor | None = None) -> Loss:
        """Gather this rank's embeddings and return the loss over the global batch."""
        sides = [image.float(), *torch.split(text.float(), len(batch.sample_id))]
        image, text, *negatives = _gather_sides(sides, sizes)
        negative_text = negatives[0] if negatives else None
        embeddings = with_metadata(image, text, scale.float(), bias=bias, negative_text=negative_text)
        return state.objective(components.mix(embeddings, progress.step), rows, progress)

    restore_buffers = _snapshot_buffers(state.model)
    if components.config.train.accumulation == 1:
        loss, scale = _one_pass(components, batch, progress, loss_fn)
    else:  # bad samples may leave a rank fewer pairs, and all ranks need the same number of micro-batches
        count = min(components.config.train.accumulation, *sizes)
        loss, scale = _two_passes(components, batch, progress, loss_fn, count)
    # the towers' draws depend on the rank; those of an optimizer must not, or the ranks' weights would drift apart
    rng.seed_device(rng.derive_seed(components.config.seed, progress.step, OPTIMIZER_STREAM), components.device)
    grad_norm = _update(components, loss, sample_id, rows, restore_buffers)
    components.timer.end_phase("optimizer")
    return {"loss": loss.total.detach(), "terms": loss.terms, "scale": scale, "lr": lr, "grad_norm": grad_norm}


def _teacher_embeddings(components: TrainComponents, batch: Batch, sizes: list[int]) -> TeacherEmbeddings | None:
    """Embed this rank's pairs with the teacher, in micro-batches, and gather the embeddings."""
    teacher, config = components.teacher, components.config.train
    if teacher is None:
        return None
    with autocast(config.precision, components.device):
        image, text = teacher(batch, -(-len(batch.image) // config.accumulation))
    image, text = _gather_sides([image, text], sizes)
    return TeacherEmbeddings(image, text, teacher.scale)


def _gather_sides(sides: list[Tensor], sizes: list[int]) -> list[Tensor]:
    """Gather [b, E_k] of all ranks to [B, E_k], with one collective."""
    if distributed.world_size() == 1:
        return sides
    widths = [side.shape[1] for side in sides]
    gathered = distributed.gather(torch.cat(sides, dim=1), sizes)
    return [side.contiguous() for side in torch.split(gathered, widths, dim=1)]


def _update(
    components: TrainComponents, loss: Loss, sample_id: Tensor, rows: Rows, restore_buffers: Callable[[Tensor], None]
) -> Tensor:
    """Clip the gradient, update if loss and gradient norm are finite, and return the norm [] before clipping.

    The device decides, without the host: in a bad step the optimizer skips its update, and averaged weights, table and
    running statistics (which would keep a NaN permanently) get their old values. In fp16, GradScaler waits for the
    device. It finds its scale by overflowing gradients, so an overflow counts as a bad step only once the scale has
    reached 1.
    """
    state, scaler = components.state, components.state.scaler
    scaler.unscale_(state.optimizer)
    largest = components.config.train.grad_clip
    grad_norm = nn.utils.clip_grad_norm_(state.model.parameters(), math.inf if largest is None else largest)
    finite_loss = loss.total.detach().isfinite()  # same on all ranks
    bad = counted = ~(finite_loss & grad_norm.isfinite())
    if not scaler.is_enabled():
        _step_unless(bad, state.optimizer)
    elif bad:
        counted = ~finite_loss if scaler.get_scale() > 1 else bad
    else:
        scaler.step(state.optimizer)
    restore_buffers(bad)
    state.model.temperature.clamp_()
    if state.ema is not None:
        _update_averages(state.ema, state.model, bad)
    state.table.write(sample_id, {column: torch.where(bad, rows[column], new) for column, new in loss.rows.items()})
    state.objective.end_step(state.table)
    components.bad_steps = (components.bad_steps.to(bad.device) + counted) * counted
    components.all_bad_steps = components.all_bad_steps.to(bad.device) + counted
    scaler.update()
    return grad_norm


def _step_unless(bad: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Update the weights unless `bad` []. Only a fused optimizer decides this on the device; others wait for it."""
    if optimizer.defaults.get("fused"):
        optimizer.found_inf = bad.float()  # type: ignore[attr-defined]  # as GradScaler does
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    elif not bad:
        optimizer.step()


@torch.no_grad()
def _update_averages(averages: ModelEmaV3, model: nn.Module, bad: Tensor) -> None:
    """Move the averaged weights towards the model's, ema += (1 - decay) (model - ema), unless `bad` []."""
    pairs = list(zip(averages.module.state_dict().values(), model.state_dict().values(), strict=True))
    old, new = (list(side) for side in zip(*[pair for pair in pairs if pair[0].is_floating_point()], strict=True))
    moves = torch._foreach_sub(new, old)
    torch._foreach_mul_(moves, (1 - averages.decay) * (~bad).float())
    torch._foreach_add_(old, moves)
    for average, value in pairs:
        if not average.is_floating_point():
            average.copy_(torch.where(bad, average, value))


def _snapshot_buffers(model: nn.Module) -> Callable[..., None]:
    """Copy all buffers (running statistics of batch norms) and return a function that restores them.

    Its argument is a bool tensor []: restore if True.
    """
    groups: dict[torch.dtype, list[Tensor]] = {}
    for buffer in model.buffers():
        groups.setdefault(buffer.dtype, []).append(buffer)
    copies = {dtype: _flat(buffers) for dtype, buffers in groups.items()}

    @torch.no_grad()
    def restore(where: Tensor | None = None) -> None:
        for dtype, buffers in groups.items():
            values = copies[dtype] if where is None else torch.where(where, copies[dtype], _flat(buffers))
            parts = torch.split(values, [buffer.numel() for buffer in buffers])
            torch._foreach_copy_(buffers, [part.view_as(b) for part, b in zip(parts, buffers, strict=True)])

    return restore


def _flat(tensors: list[Tensor]) -> Tensor:
    """Copy tensors into one: a ResNet has 150 small buffers, and one operation on each would take a GPU long."""
    return torch.cat([tensor.flatten() for tensor in tensors])


def _one_pass(components: TrainComponents, batch: Batch, progress: Progress, loss_fn: LossFn) -> tuple[Loss, Tensor]:
    """Add the gradient of the global batch's loss to the parameters; in fp16 it is multiplied by the scaler's factor.

    Returns the loss, and the scale 1/tau [] used in it.
    """
    outputs = _embed(components, batch.image, batch.text, progress, 0)
    components.timer.end_phase("forward")
    loss, gradients = _loss_and_gradients(components, outputs, loss_fn)
    components.timer.end_phase("loss")
    recomputes = components.config.train.grad_checkpointing
    restore_buffers = _snapshot_buffers(components.state.model) if recomputes else None
    _backward_towers(components, outputs, gradients)
    if restore_buffers:  # recomputed layers have updated their batch statistics twice
        restore_buffers()
    components.timer.end_phase("backward")
    return loss, outputs[2].detach()


def _two_passes(
    components: TrainComponents, batch: Batch, progress: Progress, loss_fn: LossFn, count: int
) -> tuple[Loss, Tensor]:
    """Do the same as `_one_pass` with `count` micro-batches on each rank."""
    config = components.config.train
    micro_batches = list(zip(batch.image.tensor_split(count), batch.text.tensor_split(count), strict=True))
    # compiled code rounds and draws differently with and without gradients, so both passes use the same mode
    with torch.set_grad_enabled(config.compile), _no_sync(components.forward):
        first_pass = [
            [output if output is None else output.detach() for output in _embed(components, *pair, progress, k)]
            for k, pair in enumerate(micro_batches)
        ]
    images, texts, scales, biases = zip(*first_pass, strict=True)
    components.timer.end_phase("forward")
    outputs = torch.cat(images), torch.cat(texts), scales[0], biases[0]
    loss, (d_image, d_text, *d_others) = _loss_and_gradients(components, outputs, loss_fn)
    components.timer.end_phase("loss")
    restore_buffers = _snapshot_buffers(components.state.model)
    d_pairs = zip(d_image.tensor_split(count), d_text.tensor_split(count), strict=True)
    for k, (pair, d_pair) in enumerate(zip(micro_batches, d_pairs, strict=True)):
        last = k == count - 1
        with nullcontext() if last else _no_sync(components.forward):
            # scale and bias get their gradient only once, in the micro-batch that is synchronised
            _backward_towers(components, _embed(components, *pair, progress, k), (*d_pair, *(d_others if last else ())))
    restore_buffers()  # the first pass has already updated the batch statistics
    components.timer.end_phase("backward")
    return loss, scales[0]


def _no_sync(forward: nn.Module) -> AbstractContextManager[None]:
    """Return the context of micro-batches before the last, whose gradients need not be averaged yet."""
    return forward.no_sync() if isinstance(forward, DistributedDataParallel) else nullcontext()


def _embed(components: TrainComponents, image: Tensor, text: Tensor, progress: Progress, micro_batch: int) -> Outputs:
    config = components.config
    seed = rng.derive_seed(config.seed, progress.step, distributed.rank(), micro_batch, STREAM)
    rng.seed_device(seed, components.device)
    with autocast(config.train.precision, components.device):
        outputs: Outputs = components.forward(image, text, progress)
    return outputs


def _loss_and_gradients(components: TrainComponents, outputs: Outputs, loss_fn: LossFn) -> tuple[Loss, Gradients]:
    """Return the loss and its gradient with respect to the outputs; in fp16 it is multiplied by the scaler's factor.

    The gradient is 0 for an output that no term uses: DDP needs one for every parameter.

    Separate from the towers' backward pass, because the objective has its own precision.
    """
    leaves = [output.detach().requires_grad_() for output in outputs if output is not None]
    with loss_precision(components.config.train.loss_precision):
        loss = loss_fn(*leaves)
        scaled = components.state.scaler.scale(loss.total)
        return loss, torch.autograd.grad(scaled, leaves, materialize_grads=True)


def _backward_towers(components: TrainComponents, outputs: Outputs, gradients: Gradients) -> None:
    """Backpropagate, except from outputs of frozen towers and of a fixed temperature."""
    pairs = [(o, g) for o, g in zip(outputs, gradients, strict=False) if o is not None and o.requires_grad]
    if pairs:
        with tf32(components.config.train.precision == "tf32"):
            torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])


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
        **({"skipped": skipped} if (skipped := int(components.bad_steps)) else {}),
        **({"memory_gb": round(torch.cuda.max_memory_allocated(device) / 1e9, 3)} if on_gpu else {}),
    }


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak that `memory_gb` reports, because a process may train several runs in turn."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
