"""Temperature: initial value, bounds, gradients and schedules."""

import math

import pytest
import torch

from clipx.config.schema import TemperatureConfig
from clipx.errors import UserError
from clipx.models.temperature import build_temperature, notes, same_nu
from clipx.types import Progress
from tests.helpers.pairs import START


def test_a_fixed_scale_is_one_over_tau_and_has_no_parameter() -> None:
    temperature = build_temperature(TemperatureConfig(kind="fixed", tau=0.05))
    assert temperature(START).item() == pytest.approx(20.0) and not list(temperature.parameters())


def test_nu_at_its_bound_can_move_back() -> None:
    temperature = build_temperature(TemperatureConfig(tau=0.011))
    optimizer = torch.optim.SGD(temperature.parameters(), lr=1.0)
    for direction, expected in ((-1.0, 100.0), (1.0, 100.0 / torch.e)):
        optimizer.zero_grad()
        (direction * temperature(START).log()).backward()
        optimizer.step()
        temperature.clamp_()
        assert temperature(START).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("parameterisation", "same"), [("scaled_exp", False), ("exp", True)])
def test_a_learned_temperature_with_another_divisor_does_not_continue(parameterisation: str, same: bool) -> None:
    two, four = (TemperatureConfig(kind="learned", parameterisation=parameterisation, s=s) for s in (2.0, 4.0))
    assert same_nu(two, four) is same
    assert same_nu(two, two)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TemperatureConfig(tau=0.001), "1/tau=1000, allowed: 0.01..100"),
        (TemperatureConfig(tau=1000, min_scale=1), "1/tau=0.001, allowed: 1..100"),
        (TemperatureConfig(min_scale=50, max_scale=10), "min_scale=50 is above temperature.max_scale=10"),
        (TemperatureConfig(kind="linear"), "needs temperature.tau_end"),
    ],
)
def test_errors_name_the_key(config: TemperatureConfig, message: str) -> None:
    with pytest.raises(UserError) as error:
        build_temperature(config)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "slope"),  # d(1/tau)/d nu at 1/tau = 2, by hand
    [("exp", 2.0), ("scaled_exp", 2.0 / 10), ("softplus", 1 - math.exp(-2)), ("identity", 1.0)],
)
def test_a_parameterisation_starts_at_tau_and_has_its_own_slope_and_the_same_bounds(name: str, slope: float) -> None:
    for tau in (0.01, 0.07, 1.0):
        temperature = build_temperature(TemperatureConfig(tau=tau, parameterisation=name, s=10))
        assert 1 / temperature(START).item() == pytest.approx(tau, rel=1e-5)
    temperature = build_temperature(TemperatureConfig(tau=0.5, parameterisation=name, s=10, min_scale=1))
    temperature(START).backward()
    (nu,) = temperature.parameters()
    assert nu.grad is not None and nu.grad.item() == pytest.approx(slope, rel=1e-5)
    for step, expected in ((-1e6, 1.0), (1e6, 100.0)):
        with torch.no_grad():
            nu.add_(step)
        temperature.clamp_()
        assert temperature(START).item() == pytest.approx(expected, rel=1e-5)


def taus(config: TemperatureConfig, steps: int, epochs: int) -> list[float]:
    temperature = build_temperature(config)
    progress = [Progress(s, steps, s * epochs // steps, epochs) for s in range(steps)]
    return [1 / temperature(p).item() for p in progress]


def test_linear_schedule_runs_from_tau_to_tau_end() -> None:
    config = TemperatureConfig(kind="linear", tau=0.01, tau_end=0.05)
    assert taus(config, 10, 5) == pytest.approx([0.01, 0.01, 0.02, 0.02, 0.03, 0.03, 0.04, 0.04, 0.05, 0.05])
    config.every = "step"
    assert taus(config, 5, 1) == pytest.approx([0.01, 0.02, 0.03, 0.04, 0.05])


def test_cosine_schedule_returns_to_tau_after_each_period() -> None:
    config = TemperatureConfig(kind="cosine", tau=0.01, tau_end=0.04, every="step")
    assert taus(config, 5, 1) == pytest.approx([0.01, 0.025, 0.04, 0.025, 0.01])
    config.periods = 2
    assert taus(config, 5, 1) == pytest.approx([0.01, 0.04, 0.01, 0.04, 0.01])


@pytest.mark.parametrize(
    ("kind", "epochs", "lines"), [("linear", 1, 1), ("linear", 2, 0), ("cosine", 2, 1), ("fixed", 1, 0)]
)
def test_a_schedule_too_short_to_move_is_logged(kind: str, epochs: int, lines: int) -> None:
    assert len(notes(TemperatureConfig(kind=kind, tau_end=0.1), epochs, is_trained=True)) == lines
    assert notes(TemperatureConfig(kind=kind, tau_end=0.1, every="step"), epochs, is_trained=True) == []


def test_a_learned_tau_without_gradient_is_logged() -> None:
    (line,) = notes(TemperatureConfig(tau=0.05), 3, is_trained=False)
    assert "tau stays at 0.05" in line
    assert notes(TemperatureConfig(kind="fixed"), 3, is_trained=False) == []
