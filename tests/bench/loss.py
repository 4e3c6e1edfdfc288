"""Time and peak extra memory of every pairwise term against `open_clip.loss.ClipLoss`: `make bench-loss`.

    python -m tests.bench.loss [B] [E] [repeats]        default: 8192 512 5, float32

B is the batch size, E the embedding width. A step is one forward and one backward pass of the loss. Prints:
- for each term, wall seconds, CPU seconds and memory, each followed by its ratio to ClipLoss (below 1: faster or
  smaller);
- the times of `sogclr` and `nuclr` divided by that of `clip`;
- the differences of loss and gradients between `clip` and ClipLoss.

If there is a GPU, it instead prints the milliseconds and the memory of every term on the GPU, in each loss_precision.

Times are medians over rounds in which all candidates take turns. On a busy machine set OMP_WAIT_POLICY=PASSIVE.
Otherwise waiting threads spin, and their CPU time counts. Memory is measured in a new process per candidate: the
largest resident size during the step minus the size before it, with inputs and libraries loaded (Linux only).
"""

import statistics
import sys
import time
from multiprocessing import get_context

import torch
import torch.nn.functional as F
from open_clip.loss import ClipLoss
from torch import Tensor

from clipx import objectives
from clipx.config.schema import LOSS_PRECISIONS
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Progress, TeacherEmbeddings
from clipx.utils.matmul import loss_precision
from tests.bench.measure import extra_memory, seconds

PEER = "open_clip ClipLoss"
TERMS: dict[str, dict[str, dict[str, object]]] = {name: {name: {}} for name in objectives.TERMS}
TERMS |= {
    "keyword, one in ten": {"keyword": {}},
    "keyword same_label": {"keyword": {"denominator": "same_label"}},
    "siglip, groups": {"siglip": {"positives": "group"}},
    "glofnd": {"glofnd": {"start_epoch": 0}},
}
START = Progress(step=0, total_steps=1, epoch=0, total_epochs=1)


def inputs(name: str, B: int, E: int, device: str = "cpu") -> Embeddings:
    """Draw B random pairs at tau = 0.07, in groups of 4, with a teacher's embeddings and negative texts.

    Labels are 1 to 19, as many as paper 2 has number words; 0 is a pair without a label.
    """
    generator = torch.Generator().manual_seed(0)
    sides, of_teacher = (torch.randn(2, B, E, generator=generator).to(device) for _ in range(2))
    image, text = (F.normalize(side, dim=-1).requires_grad_() for side in sides)
    label = torch.randint(1, 20, (B,), generator=generator)
    if name.endswith("one in ten"):
        label[torch.rand(B, generator=generator) > 0.1] = 0
    scale, bias = (torch.tensor(v, device=device, requires_grad=True) for v in (1 / 0.07, -10.0))
    of_image, of_text = (F.normalize(side, dim=-1) for side in of_teacher)
    teacher, ids = TeacherEmbeddings(of_image, of_text, scale.detach()), torch.arange(B, device=device)
    negative, label = of_text.clone().requires_grad_(), label.to(device)
    return Embeddings(image, text, scale, ids, label, bias, group=ids // 4, teacher=teacher, negative_text=negative)


def step(name: str, given: Embeddings) -> Tensor:
    """Run one forward and backward pass of a candidate and return its loss."""
    for leaf in (given.image, given.text, given.scale):
        if leaf.is_leaf:
            leaf.grad = None
    if name == PEER:
        loss: Tensor = ClipLoss()(given.image, given.text, given.scale)
    else:
        objective = objectives.build(TERMS[name], num_samples=len(given.image))
        assert given.sample_id is not None
        rows = SampleTable(objective.columns, len(given.image)).read(given.sample_id)
        loss = objective(given, rows, START).total
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def peak(name: str, B: int, E: int) -> float:
    """Return the peak extra memory of a candidate in MiB. Call it in a new process."""
    step(name, inputs(name, 64, E))  # libraries allocate memory in the first call
    given = inputs(name, B, E)
    return extra_memory(lambda: step(name, given))


def compare_on_gpu(B: int, E: int, repeats: int) -> None:
    """Print one line per loss_precision and candidate: milliseconds of a step on the GPU, and its peak extra memory."""
    print(f"{torch.cuda.get_device_name()}, B = {B}, E = {E}, median of {repeats}")
    for precision in LOSS_PRECISIONS:
        print(f"{precision:28}{'ms':>8}{'ratio':>7}{'MiB':>8}{'ratio':>7}")
        peer = None
        for name in (PEER, *TERMS):
            given = inputs(name, B, E, "cuda")
            milliseconds = []
            with loss_precision(precision):
                for _ in range(repeats + 1):  # the first one allocates memory
                    torch.cuda.reset_peak_memory_stats()
                    before = torch.cuda.memory_allocated()
                    milliseconds.append(1e3 * seconds(lambda name=name, given=given: step(name, given)))  # type: ignore[misc]
            cost = statistics.median(milliseconds[1:]), (torch.cuda.max_memory_allocated() - before) / 2**20
            peer = peer or cost
            cells = "".join(f"{own:8.2f}{own / of_peer:7.2f}" for own, of_peer in zip(cost, peer, strict=True))
            print(f"{name:28}{cells}", flush=True)


def median(seconds: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in seconds.items()}


def main(B: int = 8192, E: int = 512, repeats: int = 5) -> None:
    if torch.cuda.is_available():
        compare_on_gpu(B, E, repeats)
        return
    names = (PEER, *TERMS)
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        memory = {name: pool.apply(peak, (name, B, E)) for name in names}
    given = {name: inputs(name, B, E) for name in names}
    wall: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    losses = {}
    for _ in range(repeats):
        for name in names:
            start, cpu_start = time.perf_counter(), time.process_time()
            losses[name] = step(name, given[name]).item()
            wall[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - cpu_start)
    print(f"B = {B}, E = {E}, float32, {torch.get_num_threads()} threads, median of {repeats}")
    print(f"{'':28}{'seconds':>8}{'ratio':>7}{'CPU s':>8}{'ratio':>7}{'MiB':>8}{'ratio':>7}")
    for name in names:
        cells = ""
        for measured in (median(wall), median(cpu), memory):
            cells += f"{measured[name]:8.{0 if measured is memory else 2}f}{measured[name] / measured[PEER]:7.2f}"
        print(f"{name:28}{cells}")
    of_clip = {name: median(wall)[name] / median(wall)["clip"] for name in ("sogclr", "nuclr")}
    print("time over clip's: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in of_clip.items()))
    grads = [(g.image.grad, g.text.grad) for g in (given[PEER], given["clip"])]
    worst = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*grads, strict=True) if a is not None)
    print(
        f"clip - ClipLoss: loss {losses['clip'] - losses[PEER]:.1e}, largest gradient difference {worst:.1e} (relative)"
    )


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
