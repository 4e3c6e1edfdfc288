"""Terms with a teacher and without columns against double loops, and `distill` against open_clip's own loss."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from open_clip.loss import DistillClipLoss

from clipx import objectives
from clipx.errors import UserError
from clipx.objectives.teacher import STREAM
from clipx.types import Embeddings, Progress
from clipx.utils import rng
from tests.helpers.pairs import Terms, embed, random_pairs, teacher_of, value_and_gradients

Matrix = list[list[float]]
SCALE, STEP = 6.0, 3


def batch(B: int, width: int = 5) -> Embeddings:
    """Return pairs of width 4 with a teacher's embeddings of another width."""
    pairs = random_pairs(B, 4)
    return replace(embed(*pairs, SCALE), teacher=teacher_of(*pairs, width))


def products(a: torch.Tensor, b: torch.Tensor) -> Matrix:
    return [[sum(float(x) * float(y) for x, y in zip(row, column, strict=True)) for column in b] for row in a]


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(x) for x in row)
    return [math.exp(x) / total for x in row]


def transposed(s: Matrix) -> Matrix:
    return [list(column) for column in zip(*s, strict=True)]


def clip_refine(e: Embeddings, alpha: float = 0.5, T: float = 1.0) -> float:
    """RandRegUpdater of yshinya6/clip-refine, updater/contrastive.py at 31c2671368783695f1800253a6cd58f3c6e19bc0."""
    assert e.teacher is not None
    B, E = e.image.shape
    r = torch.randn(B, E, generator=rng.generator(STEP, STREAM), dtype=torch.float64)
    total = 0.0
    for side in (e.image, e.text):
        total += sum((float(side[i, k]) - float(r[i, k])) ** 2 for i in range(B) for k in range(E)) / (B * E)
    s, t = products(e.image, e.text), products(e.teacher.image, e.teacher.text)
    for student, teacher in ((s, t), (transposed(s), transposed(t))):
        for i, (row, target) in enumerate(zip(student, teacher, strict=True)):
            p, q = softmax([x / T for x in row]), softmax([x / T for x in target])
            for j in range(B):
                a = alpha * (i == j) + (1 - alpha) * q[j]
                total += T**2 * (a * math.log(a / p[j]) if a else 0.0) / B / 2
    return total


def align_clip(e: Embeddings, images: bool = True, texts: bool = True) -> float:
    """ClipInModalityLoss of sarahESL/AlignCLIP, align_clip/loss.py at 9480703a2522871b40279b5013467617e92b0c1c.

    Here beta = 1, and `semantic_features` are the teacher's texts.
    """
    assert e.teacher is not None
    B, t = len(e.image), products(e.teacher.text, e.teacher.text)
    own, total = products(e.image, e.text), 0.0
    for side in (e.image,) * images + (e.text,) * texts:
        within = products(side, side)
        for i in range(B):
            logits = [SCALE * (own[i][i] if i == j else within[i][j] * (1 - t[i][j])) for j in range(B)]
            total -= math.log(softmax(logits)[i]) / B
    return total


def feature_distill(e: Embeddings) -> float:
    assert e.teacher is not None
    total = 0.0
    for own, given in ((e.image, e.teacher.image), (e.text, e.teacher.text)):
        for x, y in zip(own.tolist(), given.tolist(), strict=True):
            total += sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / len(own)
    return total


CASES: dict[str, tuple[Terms, Callable[[Embeddings], float]]] = {
    "feature_distill": ({"feature_distill": {}}, feature_distill),
    "clip_refine": ({"clip_refine": {}}, clip_refine),
    "clip_refine alpha": ({"clip_refine": {"alpha": 1.0, "T": 0.5}}, lambda e: clip_refine(e, 1.0, 0.5)),
    "align_clip": ({"align_clip": {}}, align_clip),
    "align_clip texts": ({"align_clip": {"images": False}}, lambda e: align_clip(e, images=False)),
}


def value(terms: Terms, e: Embeddings) -> torch.Tensor:
    progress = Progress(step=STEP, total_steps=9, epoch=0, total_epochs=1)
    return objectives.build(terms, num_samples=len(e.image))(e, {}, progress).total


@pytest.mark.parametrize("B", [1, 7])
@pytest.mark.parametrize("name", CASES)
def test_loss_matches_the_double_loop(name: str, B: int) -> None:
    terms, by_loops = CASES[name]
    e = batch(B, 4 if "feature_distill" in terms else 5)
    assert abs(value(terms, e).item() - by_loops(e)) < 1e-9


def test_distill_has_value_and_gradients_of_open_clip() -> None:
    e = batch(7)
    assert e.teacher is not None
    found, gradients = value_and_gradients({"distill": {}}, e)
    leaves = [t.clone().requires_grad_() for t in (e.image, e.text, e.scale)]
    _, expected = DistillClipLoss()(*leaves, e.teacher.image, e.teacher.text, e.teacher.scale)
    expected.backward()
    assert torch.allclose(found, expected, rtol=1e-13)
    for leaf, name in zip(leaves, ("image", "text", "scale"), strict=True):
        assert leaf.grad is not None
        assert torch.allclose(gradients[name], leaf.grad, rtol=1e-10, atol=1e-14), name


@pytest.mark.parametrize(
    ("terms", "width"), [({"clip_refine": {"alpha": 0.3, "T": 0.7}}, 5), ({"feature_distill": {}}, 4)]
)
def test_gradients_match_finite_differences(terms: Terms, width: int) -> None:
    e = batch(4, width)

    def total(image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        return value(terms, Embeddings(image, text, e.scale, teacher=e.teacher))

    assert torch.autograd.gradcheck(total, [t.clone().requires_grad_() for t in (e.image, e.text)])


def test_the_length_of_the_teachers_texts_does_not_change_align_clip() -> None:
    e = batch(7)
    assert e.teacher is not None
    longer = replace(e, teacher=replace(e.teacher, text=3 * e.teacher.text))
    torch.testing.assert_close(value({"align_clip": {}}, longer), value({"align_clip": {}}, e))


def test_a_teacher_of_another_width_has_no_features_to_preserve() -> None:
    with pytest.raises(UserError, match="have the width 5, and the run's 4"):
        value({"feature_distill": {}}, batch(5))
