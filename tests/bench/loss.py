"""Time and peak extra memory of every pairwise term against `open_clip.loss.ClipLoss`: `make bench-loss`.

    python -m tests.bench.loss [B] [E] [repeats]        default: 8192 512 5, float32

Measures one forward and backward pass. Each row gives wall seconds, CPU seconds and memory of a term, each followed by
its ratio to ClipLoss: below 1 is faster or smaller. The last line compares loss and gradients of `clip` with ClipLoss.

Times are medians over rounds in which all candidates take turns. On a busy machine set OMP_WAIT_POLICY=PASSIVE;
otherwise waiting threads spin and their CPU time counts. Memory is measured in a new process per candidate: the largest
resident size during the step minus the size before it, with inputs and libraries loaded (Linux only).
"""

import statistics
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from open_clip.loss import ClipLoss
from torch import Tensor

from clipx import objectives
from clipx.types import Embeddings, Progress

PEER = "open_clip ClipLoss"
TERMS: dict[str, dict[str, dict[str, object]]] = {
    "clip": {"clip": {}},
    "positive": {"positive": {}},
    "negative": {"negative": {}},
    "cyclic_inmodal": {"cyclic_inmodal": {}},
    "cyclic_crossmodal": {"cyclic_crossmodal": {}},
    "siglip": {"siglip": {}},
    "dcl": {"dcl": {}},
    "keyword own, all labelled": {"keyword": {}},
    "keyword same_label, all": {"keyword": {"denominator": "same_label"}},
    "keyword own, one in ten": {"keyword": {}},
}
START = Progress(step=0, total_steps=1, epoch=0, total_epochs=1)


def inputs(name: str, B: int, E: int) -> Embeddings:
    """Draw random pairs at tau = 0.07 with 19 labels, the counts of paper 2."""
    generator = torch.Generator().manual_seed(0)
    image, text = (F.normalize(t, dim=-1).requires_grad_() for t in torch.randn(2, B, E, generator=generator))
    label = torch.randint(1, 20, (B,), generator=generator)
    if name.endswith("one in ten"):
        label[torch.rand(B, generator=generator) > 0.1] = 0
    scale, bias = (torch.tensor(v, requires_grad=True) for v in (1 / 0.07, -10.0))
    return Embeddings(image, text, scale, torch.arange(B), label, bias)


def step(name: str, given: Embeddings) -> Tensor:
    """Run one forward and backward pass of a candidate and return its loss."""
    for leaf in (given.image, given.text, given.scale):
        leaf.grad = None
    if name == PEER:
        loss: Tensor = ClipLoss()(given.image, given.text, given.scale)
    else:
        loss = objectives.build(TERMS[name], num_samples=len(given.image))(given, {}, START).total
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def peak(name: str, B: int, E: int) -> float:
    """Return the peak extra memory of a candidate in MiB; must run in a new process."""
    step(name, inputs(name, 64, E))  # libraries allocate memory in the first call
    given = inputs(name, B, E)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    step(name, given)
    return (status("VmHWM") - before) / 1024


def status(field: str) -> int:
    """Return a field of /proc/self/status in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def median(seconds: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in seconds.items()}


def main(B: int = 8192, E: int = 512, repeats: int = 5) -> None:
    """Print one line per candidate."""
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
    grads = [(g.image.grad, g.text.grad) for g in (given[PEER], given["clip"])]
    worst = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*grads, strict=True) if a is not None)
    print(
        f"clip - ClipLoss: loss {losses['clip'] - losses[PEER]:.1e}, largest gradient difference {worst:.1e} (relative)"
    )


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
