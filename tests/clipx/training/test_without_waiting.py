"""A training step never waits for the device, and exchanges all values of a kind at once."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from clipx.training.step import train_step
from clipx.types import Progress
from tests.helpers import tiny
from tests.helpers.gloo import Gloo
from tests.helpers.term_runs import TERMS, settings

COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "broadcast", "all_gather_object", "gather")
# of a step besides DDP's: ids and labels; embeddings; log-sum-exps; gradients. NUCLR also reads and writes its table.
MOST = {"clip": 4, "nuclr": 6, "sogclr": 5, "siglip": 4}


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the calls of torch.distributed's collectives in the block."""
    found: Counter[str] = Counter()

    def counting(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            found[name] += 1
            return plain(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in COLLECTIVES:
            patch.setattr(dist, name, counting(name, getattr(dist, name)))
        yield found


def collectives_of_a_step(term: str) -> dict[str, int]:
    config = settings(term, "none", "adamw")
    run = tiny.components(config)
    first, second, third = tiny.batches(config, 3)
    train_step(run, first, Progress(0, 3, 0, 1))
    train_step(run, second, Progress(1, 3, 0, 1))  # NUCLR's zeta is frozen in the first step
    with counted() as found:
        train_step(run, third, Progress(2, 3, 0, 1))
    return dict(found)


@pytest.mark.parametrize("term", MOST)
def test_collectives_of_a_step(term: str, gloo: Gloo) -> None:
    one, other = gloo.run(2, collectives_of_a_step, term)
    assert one == other and sum(one.values()) <= MOST[term], one


@pytest.mark.parametrize("term", TERMS)
def test_a_step_needs_no_value_from_the_device(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake tensors have no values: reading one, as a wait for a GPU would do, raises an error."""
    config = settings(term, "none", "adamw")
    run, batches = tiny.components(config), list(tiny.batches(config, 3))
    plain = torch.Tensor.numpy

    def numpy(tensor: torch.Tensor) -> Any:
        """Return the values of a tensor that is not fake, such as the ids and labels in CPU memory."""
        with unset_fake_temporarily():
            return plain(tensor)

    monkeypatch.setattr(torch.Tensor, "numpy", numpy)
    with FakeTensorMode(allow_non_fake_inputs=True):  # what is computed from weights and pairs is fake
        for step, batch in enumerate(batches):
            train_step(run, batch, Progress(step, 3, 0, 1))
