"""Parity with clip-benchmark's metrics on the same embeddings."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.metrics import accuracy, mean_per_class, recall_at_k
from evaluation.tasks.zeroshot import classifier
from tests.helpers.fakes import embeddings


def test_accuracies_equal_clip_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    from clip_benchmark.metrics import zeroshot_classification as reference
    from sklearn.metrics import balanced_accuracy_score

    # clip-benchmark calls float() on an array with one element, which numpy 2.4 refuses
    monkeypatch.setattr(reference, "float", lambda array: array.item(), raising=False)
    label = torch.randint(9, (300,), generator=torch.Generator().manual_seed(0))
    scores = (2.5 * embeddings(300, 0) + embeddings(9, 5)[label]) @ embeddings(9, 5).T
    top1, top5 = reference.accuracy(scores, label, topk=(1, 5))
    assert 0.2 < top1 < top5 < 1  # at 0 or 1, errors could stay hidden
    assert (accuracy(scores, label), accuracy(scores, label, k=5)) == pytest.approx((top1, top5))
    expected = balanced_accuracy_score(label.numpy(), scores.argmax(dim=1).numpy())
    assert mean_per_class(scores, label) == pytest.approx(expected)


def test_the_zero_shot_classifier_equals_clip_benchmarks() -> None:
    """clip-benchmark normalises the prompt embeddings, averages them per class and normalises the means.

    A fake encoder returns `prompts`.
    """
    from clip_benchmark.metrics import zeroshot_classification as reference

    prompts = 3.0 * embeddings(4 * 3, 0) + 0.2

    class GivenEmbeddings(torch.nn.Module):
        def encode_text(self, rows: Tensor) -> Tensor:
            return prompts[rows]

    order = iter(torch.arange(4 * 3).view(4, 3))
    weights = reference.zero_shot_classifier(
        GivenEmbeddings(), lambda texts: next(order), ["a", "b", "c", "d"], ["{c}", "a {c}", "no {c}"], "cpu", amp=False
    )
    torch.testing.assert_close(classifier(prompts, classes=4), weights.T)


def test_recall_equals_clip_benchmarks() -> None:
    from clip_benchmark.metrics import zeroshot_retrieval as reference

    k = 5
    owner = torch.arange(60).repeat_interleave(torch.arange(60) % 3 + 4)  # 4, 5 or 6 captions
    image = embeddings(60, 3)
    text = F.normalize(image[owner] + 2.5 * embeddings(len(owner), 4), dim=1)
    scores = text @ image.T
    positive = torch.zeros_like(scores, dtype=torch.bool)
    positive[torch.arange(len(text)), owner] = True
    expected = {
        "text_to_image": reference.batchify(reference.recall_at_k, scores, positive, 16, "cpu", k=k),
        "image_to_text": reference.batchify(reference.recall_at_k, scores.T, positive.T, 16, "cpu", k=k),
    }
    found = recall_at_k(image, text, owner, k)
    assert found == pytest.approx({name: float((hits > 0).double().mean()) for name, hits in expected.items()})
    assert 0.1 < found["text_to_image"] < 1.0  # with a recall of 0 or 1, errors could stay hidden
