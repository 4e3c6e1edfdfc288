"""Training on a GPU gives the weights and the sample table of training on the CPU, with every term."""

import pytest
import torch

from clipx.training.step import train_step
from clipx.types import Progress
from tests.helpers import tiny
from tests.helpers.tiny import TERMS, Result, assert_same, settings_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def trained(term: str, mixing: str, device: str, **train: object) -> Result:
    """Train five steps, with settings of train.* that differ from the default; return the result on the CPU."""
    config = settings_of(term, mixing, "adamw")
    for key, value in train.items():
        setattr(config.train, key, value)
    return {name: value.cpu() for name, value in tiny.train(tiny.components(config, device=device)).items()}


@pytest.mark.parametrize("mixing", ["none", "hard", "soft"])
@pytest.mark.parametrize("term", [term for term in TERMS if term != "clip_refine"])  # it draws on the device
def test_a_gpu_ends_in_the_weights_and_sample_table_of_the_cpu(term: str, mixing: str) -> None:
    start = tiny.components(settings_of(term, mixing, "adamw")).state.model.state_dict()
    expected = trained(term, mixing, "cpu")
    assert_same(trained(term, mixing, "cuda"), expected, start)
    assert_same(trained(term, mixing, "cuda", accumulation=4), expected, start)
    assert_same(trained(term, mixing, "cuda", table_device="cpu"), expected, start)


@pytest.mark.parametrize("term", TERMS)
def test_a_second_run_on_a_gpu_has_the_same_bits(term: str) -> None:
    once, again = (trained(term, "soft", "cuda") for _ in range(2))
    assert all(torch.equal(again[name], value) for name, value in once.items())


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("term", TERMS)
def test_low_precision_ends_near_the_weights_of_float32(term: str, precision: str) -> None:
    expected = trained(term, "none", "cuda")
    found = trained(term, "none", "cuda", precision=precision, loss_precision=precision)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0.1, atol=0.05, msg=tiny.about(name))


@pytest.mark.parametrize("term", TERMS)
def test_a_step_waits_for_the_gpu_nowhere(term: str) -> None:
    config = settings_of(term, "soft", "adamw")
    run = tiny.components(config, device="cuda")
    first, second, *others = [tiny.on_device(batch, run.device) for batch in tiny.batches(config, 5)]
    train_step(run, first, Progress(0, 5, 0, 1))
    train_step(run, second, Progress(1, 5, 0, 1))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step, batch in enumerate(others, 2):
            train_step(run, batch, Progress(step, 5, 0, 1))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert {int(state["step"]) for state in run.state.optimizer.state.values()} == {5}


def test_a_bad_step_changes_nothing_on_a_gpu() -> None:
    config = settings_of("nuclr", "none", "adamw")
    run = tiny.components(config, "resnet", "cuda")
    first, bad, last = (tiny.on_device(batch, run.device) for batch in tiny.batches(config, 3))
    train_step(run, first, Progress(0, 3, 0, 1))
    state = run.state
    assert state.ema is not None
    models = state.model, state.ema.module

    def everything() -> list[torch.Tensor]:
        weights = [value.clone() for model in models for value in model.state_dict().values()]
        return [*weights, state.table.values.clone()]

    before = everything()
    bad.image[2] = float("nan")
    train_step(run, bad, Progress(1, 3, 0, 1))
    assert int(run.bad_steps) == 1
    assert all(torch.equal(old, new) for old, new in zip(before, everything(), strict=True))
    train_step(run, last, Progress(2, 3, 0, 1))
    assert int(run.bad_steps) == 0 and all(value.isfinite().all() for value in everything())
