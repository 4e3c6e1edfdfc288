"""The optimal zeta of final features: eq. (6) of paper 3 by plain loops, closed forms, range, the final temperature."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from clipx.config.schema import TemperatureConfig
from clipx.run import directory
from clipx.theory.paper3.popularity import fixed_point, sample_pairs
from clipx.training import setup
from evaluation.analyses.zeta_optimum import final_tau, optimal_zeta
from tests.helpers.folder import settings
from tests.helpers.pairs import random_pairs


def centred(x: Tensor) -> Tensor:
    """Remove the constant up to which zeta is determined."""
    return x - x.mean()


@pytest.mark.parametrize("tau", [0.05, 0.2, 1.0])
def test_both_sides_solve_equation_6(tau: float) -> None:
    n = 7
    image, text = random_pairs(n, 4, seed=3)
    zeta = optimal_zeta(image, text, tau)
    e = (image @ text.T).tolist()
    for side in ("text", "image"):
        z = zeta[side].tolist()
        s = e if side == "text" else [list(column) for column in zip(*e, strict=True)]  # anchors in the rows
        inner = [sum(math.exp((s[i][k] - z[k]) / tau) for k in range(n)) for i in range(n)]
        right = [tau * math.log(sum(math.exp(s[i][j] / tau) / inner[i] for i in range(n))) for j in range(n)]
        offsets = [left - value for left, value in zip(z, right, strict=True)]
        assert max(offsets) - min(offsets) < 1e-4 * tau


def test_it_is_the_popularity_that_the_toy_problem_recovers() -> None:
    o, a = sample_pairs(60, 0.2, np.random.default_rng(0))
    expected = 0.2 * np.log(fixed_point(np.exp(o @ a.T / 0.2), 200)[0])
    found = optimal_zeta(torch.from_numpy(o), torch.from_numpy(a), 0.2)["text"]
    assert torch.allclose(centred(found), centred(torch.from_numpy(expected)), atol=1e-5)


def test_a_text_that_fits_every_image_equally_has_its_similarity_as_zeta() -> None:
    """With equal images, e_ij = c_j, and zeta_j = c_j + constant solves (6). The images are equally popular."""
    image = torch.tensor([[1.0, 0.0]]).repeat(5, 1)
    angles = torch.tensor([0.1, 0.4, 0.8, 1.2, 1.5])
    text = torch.stack([angles.cos(), angles.sin()], dim=1)
    zeta = optimal_zeta(image, text, 0.07)
    assert torch.allclose(centred(zeta["text"]), centred(angles.cos().double()), atol=1e-5)
    assert torch.allclose(centred(zeta["image"]), torch.zeros(5).double(), atol=1e-5)


def test_small_temperatures_give_finite_values() -> None:
    image, text = random_pairs(40, 8, seed=1)
    text = torch.where(torch.arange(40)[:, None] % 2 == 0, image, -image)  # similarities from -1 to 1
    zeta = optimal_zeta(image, text, 0.005)
    assert all(bool(side.isfinite().all()) for side in zeta.values())


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (TemperatureConfig(kind="fixed", tau=0.03), 0.03),
        (TemperatureConfig(kind="learned", tau=0.05), 0.04),
        (TemperatureConfig(kind="linear", tau=0.01, tau_end=0.05), 0.05),
    ],
)
def test_tau_is_the_one_at_the_end_of_the_run(
    tmp_path: Path, temperature: TemperatureConfig, expected: float
) -> None:
    config = settings(tmp_path)
    config.temperature = temperature
    run = directory.claim(config)
    components = setup.build_components(config, torch.device("cpu"), 8, "x")
    for name, parameter in components.state.model.named_parameters():
        if name == "temperature.nu":
            parameter.data.fill_(math.log(1 / 0.04))
    folder = components.state.save(run)
    assert final_tau(config, folder) == pytest.approx(expected, rel=1e-5)
