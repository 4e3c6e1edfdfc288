"""Every term on several processes: each process computes a part, and the result equals that of one process."""

from contextlib import nullcontext
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from clipx import distributed, objectives
from clipx.objectives import similarity
from clipx.objectives.base import Rows, Term, TermOutput, build_objective
from clipx.sample_table import SampleTable
from clipx.training.cost import flop_counter
from clipx.types import Embeddings, Part, Progress
from tests.helpers.gloo import Gloo
from tests.helpers.largest_tensor import Largest
from tests.helpers.pairs import Terms, negatives_of, progress, random_pairs, teacher_of

TERMS: dict[str, Terms] = {
    **{name: {name: {}} for name in objectives.TERMS},
    "neuclip": {"neuclip": {"prototypes": 16}},
    "keyword same_label": {"keyword": {"denominator": "same_label"}},
    "sogclr own_pair": {"sogclr": {"own_pair": True}},
    "nuclr code": {"nuclr": {"variant": "code", "eta": 0.1}},
    "nuclr unbiased": {"nuclr": {"variant": "unbiased"}},
    "nuclr frozen": {"nuclr": {"freeze_steps": 1}},
    "glofnd learning": {"glofnd": {"start_epoch": 0, "alpha": 0.3}},
    "siglip group": {"siglip": {"positives": "group"}},
    "sum": {"clip": {}, "nuclr": {"weight": 0.5}, "cyclic_inmodal": {"weight": 0.25}},
}
# terms that read labels or groups
WITH_LABELS = ["keyword", "keyword same_label", "multi_positive", "siglip group"]
WITHOUT_PRODUCTS = {"positive", "negative", "counterfactual", "feature_distill"}
FEW = [name for name in TERMS if "cyclic" in name or name == "sum"]  # with products of another shape if B < E
E = 6
PRODUCT_B, PRODUCT_E, TILE_ROWS = 32, 16, 8  # sizes where products are counted; a tile has a quarter of the rows


class Counted(Term):
    """A sigmoid loss that ignores `part`, as a plug-in may: every process computes the whole."""

    needs = ("bias",)

    def __init__(self) -> None:
        self.columns = {"counted_visits": 0.0}

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        assert embeddings.bias is not None
        z = embeddings.scale * embeddings.image @ embeddings.text.T + embeddings.bias
        losses = -logsigmoid((2 * torch.eye(len(z), dtype=z.dtype) - 1) * z).mean(dim=1)
        visits = rows["counted_visits"] + 1
        return (losses / visits).sum(), {"counted_visits": visits}


AND_OWN: dict[str, Terms] = {**TERMS, "own": {"own": {}}}
Results = dict[str, Tensor]


def two_steps(terms: Terms, sizes: list[int], labels: list[int]) -> tuple[Results, Results]:
    """Return what all processes have in common (losses, columns, gradients of scale and bias), and local gradients."""
    B, own = sum(sizes), distributed.part(sizes).rows
    objective = build_objective({**objectives.TERMS, "own": Counted}, terms, B)
    table = SampleTable(objective.columns, B, dtype=torch.float64)
    shared: Results = {}
    local: Results = {}
    for step in range(2):
        image, text = (side[own].clone().requires_grad_() for side in random_pairs(B, E, seed=step))
        scale, bias = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (9.0, -3.0))
        ids = torch.arange(B).roll(step)
        images, texts = distributed.gather(image, sizes), distributed.gather(text, sizes)
        teacher = teacher_of(*random_pairs(B, E, seed=step), E if "feature_distill" in terms else 5)
        label, part = torch.tensor(labels), distributed.part(sizes)
        negatives = distributed.gather(negatives_of(text.detach()).requires_grad_(), sizes)
        batch = Embeddings(images, texts, scale, ids, label, bias, part, label, teacher, negatives)
        loss = objective(batch, table.read(ids), progress(step))
        loss.total.backward()  # type: ignore[no-untyped-call]
        table.write(ids, loss.rows)
        objective.end_step(table)
        shared |= {f"{name} {step}": value.detach() for name, value in (loss.terms | loss.rows).items()}
        for name, leaf in (("scale", scale), ("bias", bias), ("image", image), ("text", text)):
            assert leaf.grad is not None
            if name in ("image", "text"):
                local[f"{name} {step}"] = leaf.grad / distributed.world_size()  # as DDP averages
            else:
                shared[f"{name} {step}"] = leaf.grad
    return shared, local


def run_terms(names: list[str], sizes: list[int], labels: list[int]) -> dict[str, tuple[Results, Results]]:
    """Run the terms in small tiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(similarity.TILE_BYTES, "cpu", 2 * sum(sizes) * 8)
        return {name: two_steps(AND_OWN[name], sizes, labels) for name in names}


@cache
def of_one_process(names: tuple[str, ...], B: int, labels: tuple[int, ...]) -> dict[str, tuple[Results, Results]]:
    return run_terms(list(names), [B], list(labels))


@pytest.mark.parametrize(
    ("sizes", "names", "labels"),  # pairs on each of 2 or 4 processes
    [
        ([11, 0], [*WITH_LABELS, "clip", "siglip", "rank", "neuclip", "nuclr", "sum", "own"], "some"),
        ([4, 0, 5, 2], list(AND_OWN), "some"),
        ([4, 0, 5, 2], WITH_LABELS, "none"),
        ([1, 1, 1, 1], FEW, "some"),
    ],
    ids=["two", "four", "no labels", "fewer than E"],
)
def test_processes_with_parts_agree_with_one_process(
    sizes: list[int], names: list[str], labels: str, gloo: Gloo
) -> None:
    given = [i % 3 if labels == "some" and i < 8 else 0 for i in range(sum(sizes))]
    by_rank = gloo.run(len(sizes), run_terms, names, sizes, given)
    for name in names:
        shared, local = of_one_process((name,), sum(sizes), tuple(given))[name]
        for key, value in shared.items():
            for found in by_rank:
                torch.testing.assert_close(found[name][0][key], value, rtol=1e-11, atol=1e-13, msg=f"{name} {key}")
        for key, value in local.items():
            joined = torch.cat([found[name][1][key] for found in by_rank])
            torch.testing.assert_close(joined, value, rtol=1e-11, atol=1e-13, msg=f"{name} {key}")


@cache
def flops_and_largest_tensor(world: int) -> dict[str, tuple[int, int]]:
    """Return for each objective the FLOPs of its products on one of `world` processes, and its largest tensor's size.

    The size is 0 on several processes, because the search for it takes as long as the count. The process gets nothing
    from the others, which changes values only.
    """
    B, width = PRODUCT_B, PRODUCT_E
    part = Part()
    part.rows = slice(0, B // world)
    found = {}
    for name, terms in TERMS.items():
        objective = objectives.build(terms, num_samples=B)
        image, text = (side.requires_grad_() for side in random_pairs(B, width))
        scale, bias = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (9.0, -3.0))
        ids = torch.arange(B)
        others = teacher_of(image, text, width if name == "feature_distill" else 5), negatives_of(text).requires_grad_()
        batch = Embeddings(image, text, scale, ids, ids % 3 + 1, bias, part, ids // 2, *others)
        rows = SampleTable(objective.columns, B, dtype=torch.float64).read(torch.arange(B))
        largest = Largest() if world == 1 else None  # type: ignore[no-untyped-call]
        with pytest.MonkeyPatch.context() as patch, flop_counter() as counter, largest or nullcontext():
            patch.setitem(similarity.TILE_BYTES, "cpu", TILE_ROWS * B * 8)
            patch.setattr(similarity, "ROW_TENSORS", 1)  # as many rows in the tiles of all terms
            objective(batch, rows, progress()).total.backward()  # type: ignore[no-untyped-call]
        found[name] = int(counter.get_total_flops()), largest.elements if largest else 0
    return found


def test_four_processes_share_the_products() -> None:
    for name, (whole, _) in flops_and_largest_tensor(1).items():
        flops, _ = flops_and_largest_tensor(4)[name]
        assert (whole == 0) == (name in WITHOUT_PRODUCTS), name
        assert flops <= 0.27 * whole, f"{name}: {flops / max(whole, 1):.3f} of one process"


def test_terms_with_a_softmax_need_four_products_on_one_process() -> None:
    for name in ("clip", "dcl", "keyword", "sogclr", "nuclr", "nuclr code", "multi_positive", "fastclip_v3"):
        assert flops_and_largest_tensor(1)[name][0] == 4 * 2 * PRODUCT_B**2 * PRODUCT_E, name


def test_no_term_stores_a_matrix_of_all_pairs() -> None:
    for name, (_, largest) in flops_and_largest_tensor(1).items():
        assert largest <= 3 * TILE_ROWS * PRODUCT_B, f"{name}: a tensor of {largest} elements"  # three tiles
