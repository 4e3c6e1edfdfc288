"""Parity with clip-benchmark's zero-shot metrics on the same embeddings; test_metrics.py has recall."""

import pytest
import torch
from torch import Tensor

from evaluation.metrics import accuracy, mean_per_class
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
