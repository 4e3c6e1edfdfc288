"""FLOPs of a training step, counted on fake tensors (shapes without values)."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from clipx.config.schema import RunConfig
from clipx.models import clip
from clipx.types import Progress

BATCH = 8  # pairs counted; the FLOPs of the towers are proportional to the batch
KERNELS = ("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention")


def flop_counter() -> FlopCounterMode:
    """Return torch's FLOP counter with formulas for every attention kernel; torch 2.14's table lacks the CPU kernel."""
    aten = torch.ops.aten
    forward = {getattr(aten, f"_scaled_dot_product_{kernel}"): _attention for kernel in KERNELS}
    backward = {getattr(aten, f"_scaled_dot_product_{kernel}_backward"): _attention_backward for kernel in KERNELS}
    return FlopCounterMode(display=False, custom_mapping=forward | backward)


def _attention(query: torch.Size, key: torch.Size, value: torch.Size, *_: object, **__: object) -> int:
    """Count two products: Q K^T, and the weights times V. Shapes [batch, heads, tokens, width of a head]."""
    batch, heads, queries, width = query
    return 2 * batch * heads * queries * key[2] * (width + value[3])


def _attention_backward(
    gradient: torch.Size, query: torch.Size, key: torch.Size, value: torch.Size, *_: object, **__: object
) -> int:
    """Count five products: Q K^T again, and the gradients of V, the weights, Q and K."""
    batch, heads, queries, width = query
    return 2 * batch * heads * queries * key[2] * (3 * width + 2 * value[3])


def step_flops(config: RunConfig) -> int:
    """Return the FLOPs of both towers, forward and backward, for a global batch; a multiply-add counts as 2.

    Counted on fake tensors: matrix products, convolutions and attention. Not counted: the objective (each process
    computes it for the whole batch), the optimizer and the second forward pass of accumulation.

    Raises:
        UserError: unknown towers.
    """
    with torch.device("meta"):  # allocates nothing, however large the towers
        model = clip.build_model(config, pretrained=False).train()
    inputs = model.inputs
    with FakeTensorMode(allow_non_fake_inputs=True), flop_counter() as counter:
        model.to_empty(device="cpu")
        image = torch.empty(BATCH, 3, inputs.image_size, inputs.image_size)
        text = torch.zeros(BATCH, inputs.context_length, dtype=torch.int64)
        image_vectors, text_vectors, _, _ = model(image, text, Progress(0, 1, 0, 1))
        (image_vectors.sum() + text_vectors.sum()).backward()
    return round(int(counter.get_total_flops()) / BATCH * config.train.batch_size)
