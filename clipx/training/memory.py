"""Memory of a training step, counted on fake tensors (shapes without values) before anything is allocated."""

import weakref
from collections.abc import Callable
from math import ceil
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.types import Progress
from clipx.utils.device import autocast
from clipx.utils.memory import free_memory

VALUE = 4  # bytes of a float32
OF_LIBRARIES = 200 << 20  # bytes of the libraries' code, threads and workspaces, measured in the first steps on a CPU
CPU = torch.device("cpu")


def check_memory(config: RunConfig, device: torch.device) -> str:
    """Return a text with the memory that a step needs and the free memory.

    Raises UserError if a step on the CPU needs more memory than is free: the kernel would kill the process without a
    message. On a GPU, CUDA itself raises an error, at the exact limit.
    """
    processes = config.train.processes * config.launch.nodes
    of_one, free = step_bytes(config, processes), free_memory(device)
    here = of_one * (config.train.processes if device.type == "cpu" else 1)  # of all processes on the CPU, or one GPU
    need = f"about {here / 1e9:.1f} GB for a step"
    if free is None:
        return need
    if device.type == "cpu" and here > free:
        raise UserError(
            f"train.batch_size={config.train.batch_size} needs {need}, but {free / 1e9:.1f} GB are free; try a smaller "
            "one, train.accumulation=8 or train.grad_checkpointing=true"
        )
    return f"{need}, {free / 1e9:.1f} GB are free"


def step_bytes(config: RunConfig, processes: int = 1) -> int:
    """Return the peak of one process's memory in a step, beyond that of a process that has only imported torch.

    Counted: weights, gradients, activations of a micro-batch with the temporary tensors of forward and backward pass,
    AdamW's two moments, averaged weights, DDP's buckets, images of the process's pairs, embeddings of the global batch.
    Not counted: the teacher, per-sample columns, prefetched batches, the allocator's overhead. Raises as `build_model`.
    """
    train = config.train
    pairs = ceil(train.batch_size / processes)
    with torch.device("meta"):  # allocates nothing, however large the towers
        model = clip.build_model(config, pretrained=False).train()
    inputs, micro_batch = model.inputs, ceil(pairs / train.accumulation)
    with FakeTensorMode(allow_non_fake_inputs=True), _LiveBytes() as live:
        model.to_empty(device="cpu")
        image = torch.empty(micro_batch, 3, inputs.image_size, inputs.image_size)
        text = torch.zeros(micro_batch, inputs.context_length, dtype=torch.int64)
        with autocast(train.precision, CPU):
            image_vectors, text_vectors, _, _ = model(image, text, Progress(0, 1, 0, 1))
        vectors = [v for v in (image_vectors, text_vectors) if v.requires_grad]
        torch.autograd.backward(vectors, [torch.empty_like(v) for v in vectors])
    weights = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    states = 2 * trained + (weights if train.ema is not None else 0) + (trained if processes > 1 else 0)
    other_images = (pairs - micro_batch) * 3 * inputs.image_size**2
    embeddings = 6 * train.batch_size * image_vectors.shape[-1]  # both modalities: value, gathered, gradient
    return int(live.peak + VALUE * (states + other_images + embeddings) + OF_LIBRARIES)


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all living tensors that were created in the `with` block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key not in self.known:  # else a view or the result of an operation in place
            self.known.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size
