"""What a training step computes, counted and not measured: towers of fake tensors, which have shapes and no values."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from clipx.config.schema import RunConfig
from clipx.models import clip
from clipx.types import Progress

BATCH = 8  # pairs that are counted; the towers' work is proportional to them


def step_flops(config: RunConfig) -> int:
    """FLOPs of both towers, forward and backward, for a global batch; a multiplication and an addition are two.

    Matrix products, convolutions and attention count; the objective (computed whole by every process), the optimizer
    and the second forward pass of accumulation do not.

    Raises:
        UserError: unknown towers.
    """
    with torch.device("meta"):  # nothing is allocated, however large the towers
        model = clip.build_model(config, pretrained=False).train()
    inputs = model.inputs
    with FakeTensorMode(allow_non_fake_inputs=True), FlopCounterMode(display=False) as counter:
        model.to_empty(device="cpu")
        image = torch.empty(BATCH, 3, inputs.image_size, inputs.image_size)
        text = torch.zeros(BATCH, inputs.context_length, dtype=torch.int64)
        image_vectors, text_vectors, _, _ = model(image, text, Progress(0, 1, 0, 1))
        (image_vectors.sum() + text_vectors.sum()).backward()
    return round(int(counter.get_total_flops()) / BATCH * config.train.batch_size)
