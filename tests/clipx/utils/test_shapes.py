"""The library refuses tensors of the wrong type or shape in one sentence that names the argument."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clipx import geometry, objectives
from clipx.errors import UserError
from clipx.objectives.base import Objective
from clipx.types import Embeddings, TeacherEmbeddings
from evaluation import metrics

ARRAY: Any = np.ones((4, 3))
X, WIDE, LONG, SCALE = torch.randn(4, 3), torch.randn(4, 5), torch.randn(5, 3), torch.tensor(10.0)
FOUR = torch.arange(4)


def clip() -> Objective:
    return objectives.build({"clip": {}}, 4)


CALLS: dict[str, Callable[[], object]] = {
    "objective=['clip'] must map terms": lambda: objectives.build(["clip"], 4),  # type: ignore[arg-type]
    "objective.clip=3 must map parameters": lambda: objectives.build({"clip": 3}, 4),  # type: ignore[dict-item]
    "num_samples=4.5 must be a whole number": lambda: objectives.build({"nuclr": {}}, 4.5),  # type: ignore[arg-type]
    "Embeddings.image must be a torch.Tensor, not ndarray": lambda: clip()(Embeddings(ARRAY, X, SCALE)),
    "Embeddings.image has the shape [3]; expected: [B, E]": lambda: clip()(Embeddings(X[0], X[0], SCALE)),
    "Embeddings.text has the shape [4, 5]; expected: [B, E] with B=4 as in Embeddings.image, E=3": lambda: clip()(
        Embeddings(X, WIDE, SCALE)
    ),
    "Embeddings.scale has the shape [4]; expected: []": lambda: clip()(Embeddings(X, X, torch.ones(4))),
    "Embeddings.image must hold floating-point numbers, not int64": lambda: clip()(Embeddings(X.long(), X, SCALE)),
    "Embeddings.label must hold whole numbers (int64), not float32": lambda: clip()(
        Embeddings(X, X, SCALE, label=torch.zeros(4))
    ),
    "TeacherEmbeddings.image has the shape [5, 3]; expected: [B, E'] with B=4 as in Embeddings.image": lambda: clip()(
        Embeddings(X, X, SCALE, teacher=TeacherEmbeddings(LONG, LONG, SCALE))
    ),
    "TeacherEmbeddings.scale must be a torch.Tensor, not float": lambda: clip()(
        Embeddings(X, X, SCALE, teacher=TeacherEmbeddings(X, WIDE, 10.0))  # type: ignore[arg-type]
    ),
    "text has the shape [4, 5]; expected: [T, E]": lambda: metrics.recall_at_k(X, WIDE, FOUR, 1),
    "label has the shape [3]; expected: [n] with n=4 as in scores": lambda: metrics.accuracy(X, FOUR[:3]),
    "similarity has the shape [4, 3]; expected: [P, 2, 2]": lambda: metrics.pair_accuracy(X),
    "image must be a torch.Tensor": lambda: geometry.modality_gap(ARRAY, X),
    "text has the shape [5, 3]; expected: [n, E] with n=4 as in image": lambda: geometry.alignment(X, LONG),
}


@pytest.mark.parametrize("message", CALLS)
def test_a_wrong_argument_is_named_with_what_was_expected(message: str) -> None:
    with pytest.raises(UserError) as error:
        CALLS[message]()
    assert message in str(error.value) and "\n" not in str(error.value)
