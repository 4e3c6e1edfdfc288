"""Helpers for tests of loss terms: small batches, losses and gradients."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx import objectives
from clipx.types import Embeddings, Loss, Progress, TeacherEmbeddings

START = Progress(step=0, total_steps=1, epoch=0, total_epochs=1)
Terms = dict[str, dict[str, object]]


def random_pairs(B: int, E: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return random unit vectors, image and text [B, E] in float64."""
    generator = torch.Generator().manual_seed(seed)
    image, text = torch.randn(2, B, E, generator=generator, dtype=torch.float64)
    return F.normalize(image, dim=-1), F.normalize(text, dim=-1)


def embed(
    image: Tensor, text: Tensor, scale: float | Tensor, label: list[int] | None = None, bias: float | None = None
) -> Embeddings:
    """Return Embeddings in the dtype of `image`, with a teacher and negative texts.

    Pairs with the same label form a group; without `label`, pairs 2i and 2i + 1 form group i.
    """
    B, dtype = len(image), image.dtype
    group = torch.tensor(label or [i // 2 for i in range(B)])
    return Embeddings(
        image=image,
        text=text,
        scale=torch.as_tensor(scale, dtype=dtype),
        sample_id=torch.arange(B),
        label=torch.tensor(label or [0] * B),
        bias=None if bias is None else torch.tensor(bias, dtype=dtype),
        group=group,
        teacher=teacher_of(image, text),
        negative_text=negatives_of(text),
    )


def negatives_of(text: Tensor) -> Tensor:
    """Return a negative for each text [B, E]: the text with its entries shifted by one place."""
    return text.detach().roll(1, dims=1)


def teacher_of(image: Tensor, text: Tensor, width: int = 5) -> TeacherEmbeddings:
    """Return a teacher's embeddings [B, width] in float64: a fixed random projection of each vector."""
    generator = torch.Generator().manual_seed(7)
    matrix = torch.randn(image.shape[1], width, generator=generator, dtype=torch.float64)
    of_image, of_text = (F.normalize(side.detach().double() @ matrix, dim=1) for side in (image, text))
    return TeacherEmbeddings(of_image, of_text, torch.tensor(4.0, dtype=torch.float64))


def loss_of(terms: Terms, embeddings: Embeddings) -> Loss:
    return objectives.build(terms, num_samples=len(embeddings.image))(embeddings, {}, START)


def value_and_gradients(terms: Terms, embeddings: Embeddings) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss and its gradients for image, text, scale and, if present, bias."""
    given = {"image": embeddings.image, "text": embeddings.text, "scale": embeddings.scale, "bias": embeddings.bias}
    leaves = {name: t.detach().clone().requires_grad_() for name, t in given.items() if t is not None}
    image, text, scale = leaves["image"], leaves["text"], leaves["scale"]
    leaf = replace(embeddings, image=image, text=text, scale=scale, bias=leaves.get("bias"))
    total = loss_of(terms, leaf).total
    total.backward()  # type: ignore[no-untyped-call]
    zeros = {name: torch.zeros_like(t) for name, t in leaves.items()}
    return total.detach(), {name: zeros[name] if t.grad is None else t.grad for name, t in leaves.items()}
