"""Evaluation speed against scikit-learn and clip-benchmark: `make bench-eval`, on an idle machine.

1. Linear probe: the search for C as in CLIP's paper, on 10,000 features of width 512 in 10 classes, against
   scikit-learn. Prints wall times, test accuracies at the chosen C, and the largest difference of test accuracies at
   equal C up to 100, which should be small.
2. Retrieval of 5,000 images and 25,000 texts of width 512, against clip-benchmark. Prints wall times, peak extra memory
   (each candidate runs in a separate process) and recalls, which must agree.
3. Ten zero-shot sets: seconds with feature extraction and seconds with cached features.
"""

import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.tasks.linear_probe import GRID, STRIDES, Regression, search
from tests.bench.measure import extra_memory, seconds

IMAGES, TEXTS, WIDTH, CLASSES = 5_000, 25_000, 512, 10
Labelled = tuple[Tensor, Tensor]  # features [n, WIDTH], labels int64 [n]


def main() -> None:
    print(f"{torch.get_num_threads()} threads")
    for title, separation, noise in (("well separated", 0.2, 0.0), ("overlapping, 3% random labels", 0.12, 0.03)):
        _compare_searches(title, separation, noise)
    _compare_retrieval()
    _compare_extraction()


def features(n: int, seed: int, separation: float, noise: float) -> Labelled:
    """Draw n labelled features like CLIP's: unit length, large common mean, k-th variance proportional to 1/k.

    The class centres do not depend on `seed`. Their standard deviation is `separation` times that within a class. A
    share `noise` of the labels is random.
    """
    fixed, own = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    spread = torch.arange(1, WIDTH + 1).float().rsqrt()
    centres = separation * spread * torch.randn(CLASSES, WIDTH, generator=fixed)
    mean = F.normalize(torch.randn(WIDTH, generator=fixed), dim=0) * spread.norm() * 1.2
    rotation = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=fixed))[0]
    label = torch.randint(CLASSES, (n,), generator=own)
    found = (centres[label] + spread * torch.randn(n, WIDTH, generator=own)) @ rotation + mean
    wrong = torch.rand(n, generator=own) < noise
    label = torch.where(wrong, torch.randint(CLASSES, (n,), generator=own), label)
    return F.normalize(found, dim=1), label


def _compare_searches(title: str, separation: float, noise: float) -> None:
    train, validation, test = (
        features(n, seed, separation, noise) for n, seed in ((10_000, 1), (2_000, 2), (5_000, 3))
    )
    found: list[Searched] = []
    ours, theirs = (
        seconds(lambda search=search: found.append(search(train, validation, test)))  # type: ignore[misc]
        for search in (_our_search, _their_search)
    )
    (chosen, best, accuracy), (their_chosen, their_best, their_accuracy) = found
    both = [i for i in accuracy.keys() & their_accuracy.keys() if GRID[i] <= 100]
    largest = max(abs(accuracy[i] - their_accuracy[i]) for i in both)
    print(f"C search, {title}: ours {ours:.1f} s, scikit-learn {theirs:.1f} s: {theirs / ours:.1f} times faster")
    print(f"  test accuracy at the chosen C: ours {best:.4f} (C {chosen:.3g})", end="")
    print(f", scikit-learn {their_best:.4f} (C {their_chosen:.3g}); largest difference at C <= 100 {largest:.4f}")


Searched = tuple[float, float, dict[int, float]]  # chosen C, its test accuracy, index in GRID -> test accuracy


def _our_search(train: Labelled, validation: Labelled, test: Labelled) -> Searched:
    problem = Regression(*train, CLASSES)
    found = search(problem, *validation)
    accuracy_of = {}
    for i in found.accuracy_of:
        accuracy_of[i] = float((found.solutions[i](test[0]).argmax(dim=1) == test[1]).double().mean())
    return found.chosen, accuracy_of[found.best], accuracy_of


def _their_search(train: Labelled, validation: Labelled, test: Labelled) -> Searched:
    """Search as in CLIP's paper, with scikit-learn: L-BFGS, at most 1,000 iterations, default tolerance, zero start."""
    from sklearn.linear_model import LogisticRegression

    warnings.simplefilter("ignore")
    (x, y), on_validation, on_test = ((f.numpy(), label.numpy()) for f, label in (train, validation, test))
    validation_accuracy: dict[int, float] = {}
    accuracy_of: dict[int, float] = {}
    best = 0
    for stride in STRIDES:
        around = range(0, len(GRID), stride) if stride == STRIDES[0] else (best - stride, best + stride)
        for i in (i for i in around if i in range(len(GRID))):
            model = LogisticRegression(C=GRID[i], max_iter=1000).fit(x, y)
            validation_accuracy[i] = float(model.score(*on_validation))
            accuracy_of[i] = float(model.score(*on_test))
        best = min(validation_accuracy, key=lambda i: (-validation_accuracy[i], i))
    return GRID[best], accuracy_of[best], accuracy_of


def _compare_retrieval() -> None:
    measured = {}
    for name in RETRIEVALS:
        command = [sys.executable, "-m", "tests.bench.evaluation", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        measured[name] = [float(number) for number in done.stdout.split()]
    for name, (wall, extra, *recalls) in measured.items():
        values = " ".join(f"{100 * value:.2f}" for value in recalls)
        print(f"retrieval {IMAGES} x {TEXTS}, {name}: {wall:.2f} s, {extra:.0f} MiB extra memory, R@1/5/10 {values}")
    ratio = measured["clip-benchmark"][0] / measured["ours"][0]
    print(f"  {ratio:.1f} times faster")


def _our_recalls(image: Tensor, text: Tensor, owner: Tensor) -> list[float]:
    """Return R@1, R@5, R@10 from text to image, then from image to text; `owner` [texts]: the image of each text."""
    from evaluation.metrics import hits, retrieval_ranks

    ranks = retrieval_ranks(image, text, owner)
    return [float(hits(found, k).mean()) for found in (ranks.text_to_image, ranks.image_to_text) for k in (1, 5, 10)]


def _their_recalls(image: Tensor, text: Tensor, owner: Tensor) -> list[float]:
    from clip_benchmark.metrics.zeroshot_retrieval import batchify, recall_at_k

    scores = text @ image.T
    positive = torch.zeros_like(scores, dtype=torch.bool)
    positive[torch.arange(len(text)), owner] = True
    return [
        float((batchify(recall_at_k, s, p, 64, "cpu", k=k) > 0).float().mean())
        for s, p in ((scores, positive), (scores.T, positive.T))
        for k in (1, 5, 10)
    ]


RETRIEVALS = {"ours": _our_recalls, "clip-benchmark": _their_recalls}


def _measure_retrieval(name: str) -> None:
    """Print seconds, peak extra MiB and recalls of one candidate. Runs in a new process: the peak is per process."""
    generator = torch.Generator().manual_seed(0)
    image = F.normalize(torch.randn(IMAGES, WIDTH, generator=generator), dim=1)
    owner = torch.arange(TEXTS) // (TEXTS // IMAGES)
    noise = F.normalize(torch.randn(TEXTS, WIDTH, generator=generator), dim=1)
    text = F.normalize(image[owner] + 6.0 * noise, dim=1)
    RETRIEVALS[name](image[:100], text[:500], owner[:500])  # the first call loads libraries and threads
    recalls: list[float] = []
    start = time.perf_counter()
    extra = extra_memory(lambda: recalls.extend(RETRIEVALS[name](image, text, owner)))
    print(time.perf_counter() - start, extra, *recalls)


def _compare_extraction() -> None:
    from evaluation import runner
    from evaluation.embedding.encoder import from_open_clip
    from tests.helpers import fakes

    encoder = from_open_clip("open_clip:mini-vit-64/random", torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        specs = [fakes.labelled(root / f"set{i}", classes=10 + i, test=400) for i in range(10)]

        def run(tasks: list[str], out: str) -> float:
            return seconds(lambda: runner.evaluate(encoder, specs, tasks, root / out, root / "cache", 128, 0, "cpu"))

        with_extraction, scoring = run(["zeroshot"], "first"), run(["zeroshot"], "second")
    print(f"ten zero-shot sets: {with_extraction:.2f} s with extraction, {scoring:.2f} s with cached features")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        _measure_retrieval(sys.argv[1])
    else:
        main()
