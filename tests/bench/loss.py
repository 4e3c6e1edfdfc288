"""Time and peak extra memory of every pairwise term against `open_clip.loss.ClipLoss`, forward and backward.

    python -m tests.bench.loss [B] [E] [repeats]        default 8192 512 5, float32

Times are medians of rounds in which all candidates take turns. Memory is measured in a fresh process for each: the
highest resident size while it runs, less the size just before, when inputs and libraries are loaded (Linux only).
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
    """Random pairs at tau = 0.07, with the 19 counts of paper 2 as labels."""
    generator = torch.Generator().manual_seed(0)
    image, text = (F.normalize(t, dim=-1).requires_grad_() for t in torch.randn(2, B, E, generator=generator))
    label = torch.randint(1, 20, (B,), generator=generator)
    if name.endswith("one in ten"):
        label[torch.rand(B, generator=generator) > 0.1] = 0
    scale, bias = (torch.tensor(v, requires_grad=True) for v in (1 / 0.07, -10.0))
    return Embeddings(image, text, scale, torch.arange(B), label, bias)


def step(name: str, given: Embeddings) -> Tensor:
    """One forward and backward of a candidate; its loss."""
    for leaf in (given.image, given.text, given.scale):
        leaf.grad = None
    if name == PEER:
        loss: Tensor = ClipLoss()(given.image, given.text, given.scale)
    else:
        loss = objectives.build(TERMS[name], num_samples=len(given.image))(given, {}, START).total
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def peak(name: str, B: int, E: int) -> float:
    """Peak extra memory of a candidate in MiB; in a process of its own."""
    step(name, inputs(name, 64, E))  # libraries take their own memory at the first call
    given = inputs(name, B, E)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from the present size
    before = status("VmRSS")
    step(name, given)
    return (status("VmHWM") - before) / 1024


def status(field: str) -> int:
    """A line of /proc/self/status, KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main(B: int = 8192, E: int = 512, repeats: int = 5) -> None:
    """Prints a line for each candidate."""
    names = (PEER, *TERMS)
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        memory = {name: pool.apply(peak, (name, B, E)) for name in names}
    given = {name: inputs(name, B, E) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    losses = {}
    for _ in range(repeats):
        for name in names:
            start = time.perf_counter()
            losses[name] = step(name, given[name]).item()
            times[name].append(time.perf_counter() - start)
    median = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(f"B = {B}, E = {E}, float32, {torch.get_num_threads()} threads, median of {repeats}")
    print(f"{'':28}{'seconds':>8}{'ratio':>7}{'MiB':>8}{'ratio':>7}")
    for name in names:
        ratios = median[name] / median[PEER], memory[name] / memory[PEER]
        print(f"{name:28}{median[name]:8.2f}{ratios[0]:7.2f}{memory[name]:8.0f}{ratios[1]:7.2f}")
    grads = [(g.image.grad, g.text.grad) for g in (given[PEER], given["clip"])]
    worst = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*grads, strict=True) if a is not None)
    print(
        f"clip - ClipLoss: loss {losses['clip'] - losses[PEER]:.1e}, largest gradient difference {worst:.1e} (relative)"
    )


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
