"""tau starts where it should and stays in its bounds without losing its gradient."""

import pytest
import torch

from clipx.config import TemperatureConfig
from clipx.errors import UserError
from clipx.temperature import build
from clipx.types import Progress

START = Progress(step=0, total_steps=1, epoch=0, total_epochs=1)


@pytest.mark.parametrize("kind", ["learned", "fixed"])
def test_scale_starts_at_the_inverse_of_tau(kind: str) -> None:
    assert build(TemperatureConfig(kind=kind, tau=0.05))(START).item() == pytest.approx(20.0)


def test_only_a_learned_temperature_has_a_parameter() -> None:
    assert len(list(build(TemperatureConfig()).parameters())) == 1
    assert not list(build(TemperatureConfig(kind="fixed")).parameters())


def test_the_bound_holds_and_can_be_left_again() -> None:
    temperature = build(TemperatureConfig(tau=0.011))
    optimizer = torch.optim.SGD(temperature.parameters(), lr=1.0)
    for direction, expected in ((-1.0, 100.0), (1.0, 100.0 / torch.e)):
        optimizer.zero_grad()
        (direction * temperature(START).log()).backward()
        optimizer.step()
        temperature.bound_()
        assert temperature(START).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TemperatureConfig(tau=0.001), "starts above temperature.max_scale=100"),
        (TemperatureConfig(kind="lerned"), "did you mean 'learned'"),
    ],
)
def test_mistakes_name_the_key(config: TemperatureConfig, message: str) -> None:
    with pytest.raises(UserError) as error:
        build(config)
    assert message in str(error.value)
