"""Time and peak extra memory of every pairwise term against `open_clip.loss.ClipLoss`: `make bench-loss`.

    python -m tests.bench.loss [B] [E] [repeats]        default: 8192 512 5, float32

B is the batch size, E the embedding width. A step is one forward and one backward pass of the loss. Prints milliseconds
(median of the repeats) and memory of each term, each followed by its ratio to ClipLoss (below 1: faster or smaller); on
a GPU, if there is one, in each loss_precision.

On a CPU each candidate has a process of its own, with inputs and libraries loaded before the step. On a GPU torch
counts the memory, so all candidates share this process.
"""

import statistics
import sys
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


def inputs(name: str, B: int, E: int, device: str) -> Embeddings:
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


def step(name: str, given: Embeddings) -> None:
    """Run one forward and backward pass of a candidate."""
    loss: Tensor
    if name == PEER:
        loss = ClipLoss()(given.image, given.text, given.scale)
    else:
        objective = objectives.build(TERMS[name], num_samples=len(given.image))
        assert given.sample_id is not None
        rows = SampleTable(objective.columns, len(given.image)).read(given.sample_id)
        loss = objective(given, rows, START).total
    loss.backward()  # type: ignore[no-untyped-call]


def peak(name: str, B: int, E: int, device: str = "cpu") -> float:
    """Return the peak extra memory of a candidate in MiB. Call it in a new process, unless it computes on a GPU."""
    step(name, inputs(name, 64, E, device))  # libraries allocate memory in the first call
    given = inputs(name, B, E, device)
    return extra_memory(lambda: step(name, given), device)


def cost(name: str, precision: str, device: str, B: int, E: int, repeats: int) -> tuple[float, float]:
    """Return milliseconds and MiB of a candidate, measured as in `peak`."""
    with loss_precision(precision):
        memory, given = peak(name, B, E, device), inputs(name, B, E, device)
        return 1e3 * statistics.median(seconds(lambda: step(name, given)) for _ in range(repeats)), memory


def main(B: int = 8192, E: int = 512, repeats: int = 5) -> None:
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    print(f"{device}, B = {B}, E = {E}, median of {repeats}")
    for precision in LOSS_PRECISIONS if on_gpu else ("fp32",):
        print(f"{precision:28}{'ms':>9}{'ratio':>7}{'MiB':>9}{'ratio':>7}")
        peer = None
        for name in (PEER, *TERMS):
            candidate = name, precision, device, B, E, repeats
            if on_gpu:
                found = cost(*candidate)
            else:
                with get_context("spawn").Pool(1) as pool:
                    found = pool.apply(cost, candidate)
            peer = peer or found
            cells = "".join(f"{own:9.2f}{own / of_peer:7.2f}" for own, of_peer in zip(found, peer, strict=True))
            print(f"{name:28}{cells}", flush=True)


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
