"""FLOPs of a training step, counted on fake tensors (shapes without values)."""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode, mm_flop, sdpa_backward_flop_count, sdpa_flop_count

from clipx.config.schema import RunConfig
from clipx.models import clip
from clipx.types import Progress

BATCH = 8  # pairs counted; the FLOPs of the towers are proportional to the batch


def flop_counter() -> FlopCounterMode:
    """Return torch's FLOP counter with what torch 2.14 does not count: attention's CPU kernel and in-place products."""
    aten = torch.ops.aten
    forward: Any = sdpa_flop_count
    backward: Any = sdpa_backward_flop_count
    formulas = {
        aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: forward(*shapes[:3]),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda *shapes, **_: backward(*shapes[:4]),
        aten.addmm_: lambda *shapes, **_: mm_flop(*shapes[1:3]),
    }
    return FlopCounterMode(display=False, custom_mapping=formulas)


def step_flops(config: RunConfig) -> int:
    """Return the FLOPs of both towers, forward and backward, for a global batch; a multiply-add counts as 2.

    Counted on fake tensors: matrix products, convolutions and attention. Not counted: the objective, the teacher, the
    optimizer and accumulation's second forward pass. Raises like `build_model`.
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
