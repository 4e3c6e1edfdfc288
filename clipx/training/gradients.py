"""Gradient of a step: in one pass, or in two over micro-batches, with all negatives of the batch (train.accumulation).

Two passes, with N micro-batches on each rank (gradient cache: Gao et al. 2021, "Scaling Deep Contrastive Learning
Batch Size under Memory Limited Setup"):

    1. Embed all micro-batches without keeping activations.
    2. Compute the objective of the global batch and its gradient with respect to embeddings, scale and bias.
    3. Embed each micro-batch again and backpropagate its share of that gradient through the towers.

The sum is the gradient of the large batch, because an embedding depends on its own sample only. Batch statistics are
the exception: they cover one micro-batch, on one rank or (train.sync_batchnorm) on all ranks. Random draws in the
towers (dropout) are seeded by (seed, step, rank, micro-batch), so both passes and a resumed run draw equal numbers.
"""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from clipx import distributed
from clipx.training.setup import TrainComponents
from clipx.types import Batch, Loss, Progress
from clipx.utils import rng
from clipx.utils.device import autocast, tf32
from clipx.utils.matmul import loss_precision

STREAM = 0x544F57  # separates the towers' random draws from other draws seeded by (seed, step)

Outputs = tuple[Tensor, Tensor, Tensor, Tensor | None]  # image [b, E], text [b, E], scale [], bias []
Gradients = tuple[Tensor | None, ...]  # with respect to all outputs, or to image and text only
LossFn = Callable[[Tensor, Tensor, Tensor, Tensor | None], Loss]  # local outputs -> loss of the global batch


def backward(components: TrainComponents, batch: Batch, progress: Progress, loss_fn: LossFn) -> tuple[Loss, Tensor]:
    """Add the gradient of the global batch's loss to the parameters; in fp16 it is multiplied by the scaler's factor.

    Returns the loss, and the scale 1/tau [] used in it.
    """
    passes = _one_pass if components.config.train.accumulation == 1 else _two_passes
    return passes(components, batch, progress, loss_fn)


def snapshot_buffers(model: nn.Module) -> Callable[[], None]:
    """Copy all buffers (running statistics of batch norms) and return a function that restores them."""
    copies = [(buffer, buffer.clone()) for buffer in model.buffers()]

    @torch.no_grad()
    def restore() -> None:
        for buffer, value in copies:
            buffer.copy_(value)

    return restore


def _one_pass(components: TrainComponents, batch: Batch, progress: Progress, loss_fn: LossFn) -> tuple[Loss, Tensor]:
    outputs = _embed(components, batch.image, batch.text, progress, 0)
    components.timer.end_phase("forward")
    loss, gradients = _loss_and_gradients(components, outputs, loss_fn)
    components.timer.end_phase("loss")
    recomputes = components.config.train.grad_checkpointing
    restore_buffers = snapshot_buffers(components.state.model) if recomputes else None
    _backward_towers(components, outputs, gradients)
    if restore_buffers:  # recomputed layers have updated their batch statistics twice
        restore_buffers()
    components.timer.end_phase("backward")
    return loss, outputs[2].detach()


def _two_passes(components: TrainComponents, batch: Batch, progress: Progress, loss_fn: LossFn) -> tuple[Loss, Tensor]:
    config, parallel = components.config.train, components.parallel
    # bad samples may leave a rank fewer than N pairs; all ranks need the same number of micro-batches
    count = min(config.accumulation, int(-distributed.all_reduce_max(-float(len(batch.image)))))
    micro_batches = list(zip(batch.image.tensor_split(count), batch.text.tensor_split(count), strict=True))
    # compiled code rounds and draws differently with and without gradients, so both passes use the same mode
    with torch.set_grad_enabled(config.compile), parallel.no_sync():
        first_pass = [
            [output if output is None else output.detach() for output in _embed(components, *pair, progress, k)]
            for k, pair in enumerate(micro_batches)
        ]
    images, texts, scales, biases = zip(*first_pass, strict=True)
    components.timer.end_phase("forward")
    outputs = torch.cat(images), torch.cat(texts), scales[0], biases[0]
    loss, (d_image, d_text, *d_others) = _loss_and_gradients(components, outputs, loss_fn)
    assert d_image is not None and d_text is not None
    components.timer.end_phase("loss")
    restore_buffers = snapshot_buffers(components.state.model)
    d_pairs = zip(d_image.tensor_split(count), d_text.tensor_split(count), strict=True)
    for k, (pair, d_pair) in enumerate(zip(micro_batches, d_pairs, strict=True)):
        last = k == count - 1
        with nullcontext() if last else parallel.no_sync():
            # scale and bias get their gradient only once, in the micro-batch that is synchronised
            _backward_towers(components, _embed(components, *pair, progress, k), (*d_pair, *(d_others if last else ())))
    restore_buffers()  # the first pass has already updated the batch statistics
    components.timer.end_phase("backward")
    return loss, scales[0]


def _embed(components: TrainComponents, image: Tensor, text: Tensor, progress: Progress, micro_batch: int) -> Outputs:
    config = components.config
    seed = rng.derive_seed(config.seed, progress.step, distributed.rank(), micro_batch, STREAM)
    rng.seed_device(seed, components.device)
    with autocast(config.train.precision, components.device):
        outputs: Outputs = components.parallel.wrapped(image, text, progress)
    return outputs


def _loss_and_gradients(components: TrainComponents, outputs: Outputs, loss_fn: LossFn) -> tuple[Loss, Gradients]:
    """Return the loss and its gradient with respect to the outputs; in fp16 it is multiplied by the scaler's factor.

    The gradient is 0 for an output that no term uses: DDP needs one for every parameter.

    Separate from the towers' backward pass, because the objective has its own precision.
    """
    leaves = [None if output is None else output.detach().requires_grad_() for output in outputs]
    image, text, scale, bias = leaves
    assert image is not None and text is not None and scale is not None
    with loss_precision(components.config.train.loss_precision):
        loss = loss_fn(image, text, scale, bias)
        components.state.scaler.scale(loss.total).backward()  # type: ignore[no-untyped-call]
    return loss, tuple(leaf if leaf is None else _gradient(leaf) for leaf in leaves)


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _backward_towers(components: TrainComponents, outputs: Outputs, gradients: Gradients) -> None:
    """Backpropagate, except from outputs of frozen towers and of a fixed temperature."""
    pairs = [(o, g) for o, g in zip(outputs, gradients, strict=False) if o is not None and o.requires_grad]
    if pairs:
        with tf32(components.config.train.precision == "tf32"):
            torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
