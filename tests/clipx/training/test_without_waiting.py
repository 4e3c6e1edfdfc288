"""A training step never waits for the device, and exchanges all values of a kind at once."""

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

from clipx.config.schema import PointsConfig, TemperatureConfig
from clipx.data.preprocess.on_device import Operations
from clipx.models.clip import ClipModel
from clipx.models.heads import KernelHead, SinglePointHead
from clipx.models.temperature import build_temperature
from clipx.objectives.sogclr import SogclrTerm
from clipx.training.modality_mixing import build_mixing
from clipx.training.step import train_step
from clipx.types import Embeddings, PointSet, Progress
from tests.helpers import tiny
from tests.helpers.gloo import Gloo
from tests.helpers.tiny import SUMS, settings_of

CPU = torch.device("cpu")
COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "broadcast", "all_gather_object", "gather")
# of a step besides DDP's: ids and labels; embeddings; log-sum-exps; gradients. NUCLR also reads and writes its table.
MOST = {"clip": 4, "nuclr": 6, "sogclr": 5, "siglip": 4}


def collectives_of_a_step(term: str) -> dict[str, int]:
    config = settings_of(term, "none", "adamw")
    run = tiny.components(config)
    first, second, third = tiny.batches(config, 3)
    train_step(run, first, Progress(0, 3, 0, 1))
    train_step(run, second, Progress(1, 3, 0, 1))  # NUCLR's zeta is frozen in the first step
    calls = {name: MagicMock(wraps=getattr(dist, name)) for name in COLLECTIVES}
    with patch.multiple(dist, **calls):
        train_step(run, third, Progress(2, 3, 0, 1))
    return {name: call.call_count for name, call in calls.items()}


@pytest.mark.parametrize("term", MOST)
def test_collectives_of_a_step(term: str, gloo: Gloo) -> None:
    one, other = gloo.run(2, collectives_of_a_step, term)
    assert one == other and sum(one.values()) <= MOST[term], one


@pytest.mark.parametrize("terms", SUMS)
def test_a_step_needs_no_value_from_the_device(terms: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake tensors have no values: reading one, as a wait for a GPU would do, raises an error in the term's code."""
    config = settings_of(terms, "none", "adamw")
    steps = 3 if "neuclip" in terms else 2  # NUCLR's zeta is frozen in the first step, neuclip restarts in the third
    run, batches = tiny.components(config), list(tiny.batches(config, steps))
    plain = torch.Tensor.numpy

    def numpy(tensor: torch.Tensor) -> Any:
        """Return the values of a tensor that is not fake, such as the ids and labels in CPU memory."""
        with unset_fake_temporarily():
            return plain(tensor)

    monkeypatch.setattr(torch.Tensor, "numpy", numpy)
    with FakeTensorMode(allow_non_fake_inputs=True):  # what is computed from weights and pairs is fake
        for step, batch in enumerate(batches):
            train_step(run, batch, Progress(step, steps, 0, 1))


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records for each copy to a GPU whether it is queued. The host waits for the others."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.queued = list[bool]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if options.get("device", CPU).type == "cuda" and any(isinstance(t, torch.Tensor) and t.is_cpu for t in args):
            self.queued.append(bool(options.get("non_blocking")))
        return function(*args, **options)


def of_kernel(device: torch.device) -> None:
    sets = PointSet(torch.empty(2, 3, tiny.E, device=device), torch.empty(2, 3, device=device))
    KernelHead(PointsConfig(kernel="imq"), tiny.E, seed=0).training(Progress(0, 1, 0, 1))(sets)


def of_mixing(device: torch.device) -> None:
    image, text = torch.empty(2, 4, tiny.E, device=device)
    mix = build_mixing("soft", 1.0, seed=0)
    with patch("clipx.training.modality_mixing.mixes", return_value=True):  # fake numbers cannot be compared
        mix(Embeddings(image, text, torch.empty((), device=device)), 0)


def of_schedule(device: torch.device) -> None:
    tau = build_temperature(TemperatureConfig(kind="linear", tau_end=0.1))
    model = ClipModel(nn.Identity(), nn.Identity(), tau, None, tiny.INPUTS, SinglePointHead("always"))
    model(torch.empty(2, tiny.E, device=device), torch.empty(2, tiny.E, device=device), Progress(0, 1, 0, 1))


def of_moving_averages(device: torch.device) -> None:
    term = SogclrTerm(num_samples=8)
    rows = {column: torch.empty(4, device=device) for column in term.columns}
    term.update({"image": torch.empty(4, device=device)}, rows, Progress(0, 1, 0, 1))


def of_rand_augment(device: torch.device) -> None:
    with unset_fake_temporarily():
        operations = Operations([1, 7], size=8)
    for operation in range(len(operations.signed)):  # those with negative magnitudes are the same
        operations.apply(torch.empty(2, 3, 8, 8, dtype=torch.uint8, device=device), operation)


@pytest.mark.parametrize(
    ("part", "copies"),
    [(of_kernel, 2), (of_mixing, 1), (of_schedule, 1), (of_moving_averages, 0), (of_rand_augment, 5)],
)
def test_a_copy_to_the_gpu_is_from_pinned_memory_and_queued(
    part: Callable[[torch.device], None], copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = list[torch.Tensor]()

    def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    with FakeTensorMode(allow_non_fake_inputs=True), Copies() as found:  # fake tensors of a GPU need no GPU
        try:
            part(torch.device("cuda", 0))
        except torch.AcceleratorError:
            pytest.skip("this version of torch asks for a driver, also for fake tensors")
    assert found.queued == [True] * len(pinned) == [True] * copies
