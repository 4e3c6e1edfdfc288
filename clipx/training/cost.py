"""FLOPs and memory of a training step, counted on fake tensors (shapes without values) before anything is allocated.

A count takes one to two seconds at the papers' scale, and a tenth of that in a miniature.
"""

import logging
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, mm_flop, sdpa_backward_flop_count, sdpa_flop_count

from clipx import objectives
from clipx.config.schema import OptimizerConfig, RunConfig
from clipx.errors import UserError
from clipx.objectives.similarity import TILE_BYTES
from clipx.training.devices import DEVICES
from clipx.types import Embeddings, Part, Progress, TeacherEmbeddings
from clipx.utils.device import autocast, free_memory

FLOAT32_BYTES = 4  # bytes of a float32
CPU = torch.device("cpu")
SAMPLES = 1_000_000  # number of samples of the data set while counting; the FLOPs do not depend on it
TILES = 3  # tiles of logits that an objective keeps, see `clipx.objectives.similarity.tiles`
OF_LIBRARIES = 200 << 20  # bytes of the libraries' code, threads and workspaces, measured in the first steps on a CPU
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # it also logs what it raises


@dataclass(frozen=True)
class StepCost:
    """FLOPs of one process in a step, and the bytes of its tensors at the moment when they take most memory.

    FLOPs are those of matrix products, convolutions and attention, with 2 FLOPs per multiply-add. Operations that
    checkpointing recomputes count twice.
    """

    tower_flops: int  # both towers, forward (twice with accumulation) and backward, for the process's pairs
    objective_flops: int  # the process's part of the global batch, forward and backward
    num_weights: int  # number of values in a checkpoint's weights
    num_trainable: int  # number of trained parameters
    width: int  # E, width of the embeddings
    # weights, gradients, optimizer, activations, objective, averages, batch, buckets (DDP) -> bytes
    memory: dict[str, int]

    @property
    def peak(self) -> int:
        """Bytes of all tensors at the peak."""
        return sum(self.memory.values())


def flop_counter() -> FlopCounterMode:
    """Return torch's FLOP counter, extended to attention on CPUs and in-place products, which torch 2.14 omits."""
    aten = torch.ops.aten
    forward: Any = sdpa_flop_count
    backward: Any = sdpa_backward_flop_count
    formulas = {
        aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: forward(*shapes[:3]),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda *shapes, **_: backward(*shapes[:4]),
        aten.addmm_: lambda *shapes, **_: mm_flop(*shapes[1:3]),
    }
    return FlopCounterMode(display=False, custom_mapping=formulas)


def images_at_peak(config: RunConfig, device: torch.device) -> float | None:
    """Return the images/s of a GPU that does the model's FLOPs at its peak; None for a CPU and for unknown GPUs.

    The model's FLOPs are those of towers and objective, forward and backward, without what `train.accumulation` and
    `train.grad_checkpointing` repeat. Their ratio to the peak is the model FLOP utilisation (Chowdhery et al. 2022,
    PaLM, appendix B).
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    found = next((one for one in DEVICES.values() if name in one.cuda_names), None)
    if found is None:
        return None
    once = replace(config, train=replace(config.train, accumulation=1, grad_checkpointing=False))
    try:
        cost = count_step(once)
    except Exception:  # a plug-in's tower may do what fake tensors cannot; a field of the log is no reason to end
        return None
    return found.peak(config.train.precision) * config.train.batch_size / (cost.tower_flops + cost.objective_flops)


def count_step(config: RunConfig, processes: int = 1, on_gpu: bool = False) -> StepCost:
    """Count a step of one of `processes` processes, on its share of the global batch.

    Not counted: the teacher's towers, per-sample columns, prefetched batches, libraries and the allocator's overhead.
    A term that reads values, or whose shapes depend on values (labels of `keyword`), is counted as `clip`, and an
    optimizer that reads values as AdamW.

    `on_gpu`: count the larger tiles of GPUs, and the temporary tensors of SGD's weight decay there.

    Raises UserError: as `build_model`.
    """
    from clipx.models.clip import build_model  # slow: it loads open_clip

    train = config.train
    pairs = ceil(train.batch_size / processes)
    micro_batch = ceil(pairs / train.accumulation)
    with torch.device("meta"):  # allocates nothing, however large the towers
        model = build_model(config, pretrained=False).to("meta")  # towers with trained blocks hold weights
    image_shape, text_shape = model.input_shapes()
    with FakeTensorMode(allow_non_fake_inputs=True), LiveBytes() as live:
        live.phase = "weights"
        model.to_empty(device="cpu")
        trained = [p for p in model.parameters() if p.requires_grad]
        live.phase = "averages"
        averages = [torch.empty_like(t) for t in model.state_dict().values()] if train.ema is not None else []
        live.phase = "buckets"  # in which DDP averages the gradients
        buckets = [torch.empty_like(p) for p in trained] if processes > 1 else []
        optimizer_step = _allocate_moments(model, config, live, on_gpu)
        live.phase = "batch"
        other_images = torch.empty(pairs - micro_batch, *image_shape)
        negatives = "negative_text" in objectives.build(config.objective, SAMPLES).needs
        texts = 2 * micro_batch if negatives else micro_batch
        image, text = torch.empty(micro_batch, *image_shape), torch.zeros(texts, *text_shape)
        text = text if "text" in model.frozen_towers else text.long()
        if train.accumulation > 1:  # the last micro-batch adds its gradients to those of the others
            live.phase = "gradients"
            for parameter in trained:
                parameter.grad = torch.empty_like(parameter)
        live.phase = "activations"
        with autocast(train.precision, CPU):
            outputs = model(image, text, Progress(0, 1, 0, 1))
        forward_flops, live.flops, live.phase = live.flops, 0, "objective"
        _trace_objective(config, outputs[0].shape[-1], pairs, on_gpu)
        in_objective, live.flops, live.phase = live.flops, 0, "activations"
        leaves = [output for output in outputs if output is not None and output.requires_grad]
        _count_gradients(trained, live)
        torch.autograd.backward(leaves, [torch.empty_like(leaf) for leaf in leaves])
        backward_flops = live.flops  # without those of an update, such as Muon's
        optimizer_step()
        del averages, buckets, other_images
    tower_flops = (forward_flops * (1 if train.accumulation == 1 else 2) + backward_flops) * pairs // micro_batch
    values = sum(tensor.numel() for tensor in model.state_dict().values())
    count = sum(parameter.numel() for parameter in trained)
    return StepCost(tower_flops, in_objective, values, count, outputs[0].shape[-1], dict(live.at_peak))


def check_memory(config: RunConfig, device: torch.device) -> str:
    """Return a text with the memory that a step needs on this machine, if it can be counted, and the free memory.

    Raises UserError if a step on the CPU needs more memory than is free: the kernel would kill the process without a
    message. On a GPU, CUDA itself raises an error, at the exact limit.
    """
    processes = config.train.processes * config.launch.nodes
    on_gpu, free = device.type == "cuda", free_memory(device)
    try:
        of_one = count_step(config, processes, on_gpu).peak + OF_LIBRARIES
    except RuntimeError:  # a plug-in's tower may do what fake tensors cannot; the run shows all other errors
        return "unknown for these towers"
    here = of_one * (1 if on_gpu else config.train.processes)  # of one GPU, or all processes on the CPU
    need = f"about {here / 1e9:.1f} GB for a step"
    if free is None:
        return need
    if not on_gpu and here > free:
        raise UserError(
            f"train.batch_size={config.train.batch_size} needs {need}, but {free / 1e9:.1f} GB are free; try a smaller "
            "batch, train.accumulation=8 or train.grad_checkpointing=true"
        )
    return f"{need}, {free / 1e9:.1f} GB are free"


def _allocate_moments(model: nn.Module, config: RunConfig, live: "LiveBytes", on_gpu: bool) -> Callable[[], None]:
    """Allocate the moments, as the first step does; return a function that does the update of a later step."""
    from clipx.training.optimizer import build_optimizer

    optimizer_ = build_optimizer(model, config)
    for group in optimizer_.param_groups:
        group["foreach"] = on_gpu  # torch's default for SGD: all parameters in one operation on GPUs; AdamW is fused
        for parameter in group["params"]:
            parameter.grad = torch.empty_like(parameter)

    def step() -> None:
        live.phase = "optimizer"
        optimizer_.step()
        optimizer_.zero_grad()

    try:
        step()
    except RuntimeError:  # timm's Muon and some others read values, which fake tensors do not have
        return _allocate_moments(model, replace(config, optimizer=OptimizerConfig()), live, on_gpu)
    live.peak = live.flops = 0  # are measured anew
    return step


def _trace_objective(config: RunConfig, width: int, pairs: int, on_gpu: bool) -> None:
    """Allocate gathered embeddings, and do the forward and backward pass of every term in turn."""
    batch_size = config.train.batch_size
    local = [torch.empty(pairs, width) for _ in range(2)] if config.train.accumulation > 1 else []
    image, text = (torch.empty(batch_size, width, requires_grad=True) for _ in range(2))
    scale, bias = (torch.tensor(0.0, requires_grad=True) for _ in range(2))
    ids = torch.zeros(batch_size, dtype=torch.int64)
    teacher = None
    if config.model.teacher is not None:
        teacher = TeacherEmbeddings(torch.empty_like(image), torch.empty_like(text), torch.ones(()))
    part = Part()  # of rank 0, without communication
    part.rows = slice(0, pairs)
    embeddings = Embeddings(image, text, scale, ids, ids, bias, part, group=ids, teacher=teacher, negative_text=text)
    on_cuda, on_cpu = (min(TILE_BYTES[kind], pairs * batch_size * FLOAT32_BYTES) for kind in ("cuda", "cpu"))
    tiles = torch.empty(TILES * (on_cuda - on_cpu) if on_gpu else 0, dtype=torch.uint8)
    for name, settings in config.objective.items():
        try:
            _trace_term({name: settings}, embeddings)
        except RuntimeError:  # fake tensors have no values for `.item()`, `.numpy()` or a mask
            _trace_term({"clip": {}}, embeddings)
    del local, tiles


def _trace_term(terms: dict[str, Any], embeddings: Embeddings) -> None:
    objective = objectives.build(terms, SAMPLES)
    rows = {column: torch.zeros(len(embeddings.image)) for column in objective.columns}
    objective(embeddings, rows, Progress(1, 2, 1, 2)).total.backward()  # type: ignore[no-untyped-call]


def _count_gradients(parameters: list[nn.Parameter], live: "LiveBytes") -> None:
    """Move each parameter's gradient to the phase `gradients` as soon as it is complete."""

    def completed(parameter: Tensor) -> None:
        assert parameter.grad is not None
        live.move(parameter.grad.untyped_storage(), "gradients")

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(completed)  # type: ignore[no-untyped-call]


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all living tensors that were created in the `with` block, by the phase that created them.

    torch.distributed._tools.mem_tracker finds the same peak (a test compares them), but takes eight times as long.
    FLOPs are counted here too, because torch's counter keeps the tensors of checkpointed layers alive.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0  # of all operations so far
        self.phase = ""  # name under which new tensors are counted
        self.at_peak: Counter[str] = Counter()  # phase -> bytes at the moment of the largest sum so far
        self._now: Counter[str] = Counter()
        self.peak = self._total = 0  # bytes of that sum, and of all living tensors
        self._phase_of: dict[int, str] = {}
        self._formulas: dict[Any, Callable[..., int]] = flop_counter().flop_registry

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if formula := self._formulas.get(func.overloadpacket):
            self.flops += formula(*args, **(kwargs or {}), out_val=result)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        return result

    def move(self, storage: torch.UntypedStorage, phase: str) -> None:
        """Count a living tensor under another phase."""
        self._remove(id(storage), storage.nbytes())
        self._count(id(storage), storage.nbytes(), phase)

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._phase_of:  # a view, or the result of an operation in place
            return
        self._count(key, size, self.phase)
        if self._total > self.peak:
            self.peak, self.at_peak = self._total, Counter(self._now)
        weakref.finalize(storage, self._remove, key, size)

    def _count(self, key: int, size: int, phase: str) -> None:
        self._phase_of[key] = phase
        self._now[phase] += size
        self._total += size

    def _remove(self, key: int, size: int) -> None:
        phase = self._phase_of.pop(key)
        self._now[phase] -= size
        self._total -= size
