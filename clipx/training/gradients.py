"""The gradient of a step: in one pass, or in two over micro-batches with all negatives (train.accumulation).

With N micro-batches a rank (a feature cache: Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under
Memory Limited Setup"):

    1. embeds all of them, without keeping activations;
    2. takes the objective of the whole global batch, and its gradient with respect to the embeddings, scale and bias;
    3. embeds each again and lets its share of that gradient go back through the towers.

The sum is the gradient of the large batch, since an embedding depends on its own sample alone. Batch statistics break
that: they are of a micro-batch, on one rank or with train.sync_batchnorm on all. What is random in the towers
(dropout) is drawn from (seed, step, rank, micro-batch), so that it is the same both times, and after a resume.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from clipx import distributed
from clipx.training import buffers
from clipx.training.setup import TrainComponents
from clipx.types import Batch, Loss, Progress
from clipx.utils import rng
from clipx.utils.device import autocast, tf32

STREAM = 0x544F57  # keeps the towers' draws apart from others made of (seed, step)

Outputs = tuple[Tensor, Tensor, Tensor, Tensor | None]  # image [b, E], text [b, E], scale [], bias []
Gradients = tuple[Tensor | None, ...]  # of the first of these, or of all
LossOf = Callable[[Tensor, Tensor, Tensor, Tensor | None], Loss]  # of these, over the global batch


def backward(parts: TrainComponents, batch: Batch, progress: Progress, loss_of: LossOf) -> tuple[Loss, Tensor]:
    """Adds the gradient of the global batch's loss to the parameters; in fp16 times the scaler's factor.

    Returns:
        The loss, and the scale 1/tau that it was computed with.
    """
    passes = _one_pass if parts.config.train.accumulation == 1 else _two_passes
    return passes(parts, batch, progress, loss_of)


def _one_pass(parts: TrainComponents, batch: Batch, progress: Progress, loss_of: LossOf) -> tuple[Loss, Tensor]:
    outputs = _embed(parts, batch.image, batch.text, progress, 0)
    parts.laps.end("forward")
    loss, gradients = _objective(parts, outputs, loss_of)
    parts.laps.end("loss")
    put_back = buffers.remember(parts.model) if parts.config.train.grad_checkpointing else None
    _go_back(parts, outputs, gradients)
    if put_back:  # checkpointed layers ran twice, which their batch norms counted as two batches
        put_back()
    parts.laps.end("backward")
    return loss, outputs[2].detach()


def _two_passes(parts: TrainComponents, batch: Batch, progress: Progress, loss_of: LossOf) -> tuple[Loss, Tensor]:
    # samples that were left out may leave a rank fewer than N; all ranks take the same number of micro-batches
    count = min(parts.config.train.accumulation, int(-distributed.all_reduce_max(-float(len(batch.image)))))
    pieces = list(zip(batch.image.tensor_split(count), batch.text.tensor_split(count), strict=True))
    # compiled code differs with and without gradients, in rounding and in how it draws: the same in both passes
    with torch.set_grad_enabled(parts.config.train.compile), _unsynchronised(parts.parallel):
        found = [
            [output if output is None else output.detach() for output in _embed(parts, *piece, progress, k)]
            for k, piece in enumerate(pieces)
        ]
    images, texts, scales, biases = zip(*found, strict=True)
    parts.laps.end("forward")
    whole = torch.cat(images), torch.cat(texts), scales[0], biases[0]
    loss, (of_image, of_text, *of_others) = _objective(parts, whole, loss_of)
    parts.laps.end("loss")
    put_back = buffers.remember(parts.model)
    of_pairs = zip(_chunks(of_image, count), _chunks(of_text, count), strict=True)
    for k, (piece, of_pair) in enumerate(zip(pieces, of_pairs, strict=True)):
        last = k == count - 1
        with nullcontext() if last else _unsynchronised(parts.parallel):
            outputs = _embed(parts, *piece, progress, k)
            # scale and bias belong to no micro-batch: once, in that which DDP synchronises
            _go_back(parts, outputs, (*of_pair, *(of_others if last else ())))
    put_back()  # the first pass has counted these batches
    parts.laps.end("backward")
    return loss, scales[0]


def _embed(parts: TrainComponents, image: Tensor, text: Tensor, progress: Progress, number: int) -> Outputs:
    """A micro-batch through the towers, with the draws that belong to it."""
    torch.manual_seed(rng.derive_seed(parts.config.seed, progress.step, distributed.rank(), number, STREAM))
    with autocast(parts.config.train.precision, parts.device):
        outputs: Outputs = parts.parallel(image, text, progress)
    return outputs


def _objective(parts: TrainComponents, outputs: Outputs, loss_of: LossOf) -> tuple[Loss, Gradients]:
    """The loss of what the towers gave, and its gradient with respect to that, in fp16 times the scaler's factor.

    Apart from the towers' backward, because it is of true float32 whatever the towers compute in.
    """
    image, text, scale, bias = (None if output is None else output.detach().requires_grad_() for output in outputs)
    assert image is not None and text is not None and scale is not None
    with tf32(False):
        loss = loss_of(image, text, scale, bias)
        parts.state.scaler.scale(loss.total).backward()  # type: ignore[no-untyped-call]
    return loss, (image.grad, text.grad, scale.grad, None if bias is None else bias.grad)


def _chunks(gradient: Tensor | None, count: int) -> tuple[Tensor, ...]:
    assert gradient is not None, "an objective uses both modalities"
    return gradient.tensor_split(count)


def _go_back(parts: TrainComponents, outputs: Outputs, gradients: Gradients) -> None:
    """Backward from the outputs that depend on a parameter: not those of frozen towers or a fixed temperature."""
    pairs = [(o, g) for o, g in zip(outputs, gradients, strict=False) if o is not None and o.requires_grad]
    if pairs:
        with tf32(parts.config.train.precision == "tf32"):
            torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])


def _unsynchronised(parallel: nn.Module) -> AbstractContextManager[None]:
    """Gradients stay on their rank until the last micro-batch."""
    return parallel.no_sync() if isinstance(parallel, DistributedDataParallel) else nullcontext()
