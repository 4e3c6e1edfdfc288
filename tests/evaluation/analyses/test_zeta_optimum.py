"""The optimal zeta of final features solves paper 3's eq. (6), also in hard cases, and agrees with closed forms."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.config.schema import TemperatureConfig
from clipx.errors import UserError
from clipx.run import directory
from clipx.theory.paper3 import fixed_point, sample_pairs
from clipx.training import setup
from evaluation.analyses.zeta_optimum import final_tau, optimal_zeta
from tests.helpers.folder import settings
from tests.helpers.pairs import random_pairs


def centred(x: Tensor) -> Tensor:
    """Subtract the mean, because zeta is determined up to a constant."""
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
        assert max(offsets) - min(offsets) < 1e-9


def test_the_optimum_is_the_popularity_that_the_toy_problem_recovers() -> None:
    o, a = sample_pairs(60, 0.2, np.random.default_rng(0))
    expected = 0.2 * np.log(fixed_point(np.exp(o @ a.T / 0.2), 200)[0])
    found = optimal_zeta(torch.from_numpy(o), torch.from_numpy(a), 0.2)["text"]
    assert torch.allclose(centred(found), centred(torch.from_numpy(expected)), atol=1e-9)


def test_a_text_that_fits_every_image_equally_has_its_similarity_as_zeta() -> None:
    """With equal images, e_ij = c_j, and zeta_j = c_j + constant solves (6). The images are equally popular."""
    image = torch.tensor([[1.0, 0.0]]).repeat(5, 1)
    angles = torch.tensor([0.1, 0.4, 0.8, 1.2, 1.5])
    text = torch.stack([angles.cos(), angles.sin()], dim=1)
    zeta = optimal_zeta(image, text, 0.07)
    assert torch.allclose(centred(zeta["text"]), centred(angles.cos().double()), atol=1e-5)
    assert torch.allclose(centred(zeta["image"]), torch.zeros(5).double(), atol=1e-5)


def test_the_optimum_is_found_where_sinkhorns_iteration_has_not_converged() -> None:
    """Two concepts of 24 and 8 pairs that hardly overlap: 300 sweeps are too few, 20,000 suffice."""
    tau, sizes = 0.1, (24, 8)
    generator = torch.Generator().manual_seed(0)
    centre = torch.eye(6, dtype=torch.float64)[:2].repeat_interleave(torch.tensor(sizes), dim=0)
    noise = 0.1 * torch.randn(2, 32, 6, generator=generator, dtype=torch.float64)
    image, text = F.normalize(centre + noise, dim=-1)
    e = (image @ text.T).numpy() / tau
    few = tau * np.log(fixed_point(np.exp(e), 300)[0])
    many = tau * np.log(fixed_point(np.exp(e), 20_000)[0])
    found = centred(optimal_zeta(image, text, tau)["text"])
    assert torch.allclose(found, centred(torch.from_numpy(many)), atol=1e-9)
    assert not torch.allclose(found, centred(torch.from_numpy(few)), atol=0.01)


def test_an_optimum_that_float64_does_not_determine_is_refused() -> None:
    """Two concepts with no overlap: adding a constant to the zeta of one of them changes nothing."""
    image = torch.eye(2).repeat_interleave(4, dim=0)
    with pytest.raises(UserError, match=r"the optimal zeta is not determined at tau=0.005"):
        optimal_zeta(image, image, 0.005)


def test_small_temperatures_do_not_overflow() -> None:
    image, text = random_pairs(40, 3, seed=1)
    zeta = optimal_zeta(image, text, 0.01)  # exp(similarity / tau) reaches exp(100)
    assert all(bool(side.isfinite().all()) for side in zeta.values())


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (TemperatureConfig(kind="fixed", tau=0.03), 0.03),
        (TemperatureConfig(kind="learned", tau=0.05), 0.04),
        (TemperatureConfig(kind="linear", tau=0.01, tau_end=0.05), 0.05),
    ],
)
def test_final_tau_is_that_of_the_checkpoint(tmp_path: Path, temperature: TemperatureConfig, expected: float) -> None:
    config = settings(tmp_path)
    config.temperature = temperature
    run = directory.create(config)
    components = setup.build_components(config, torch.device("cpu"), 16, "16:x")  # 2 epochs of 2 steps
    components.state.step = 4
    for name, parameter in components.state.model.named_parameters():
        if name == "temperature.nu":
            parameter.data.fill_(math.log(1 / 0.04))
    folder = components.state.save(run)
    assert final_tau(config, folder) == pytest.approx(expected, rel=1e-5)
    components.state.step = 1
    early = final_tau(config, components.state.save(run))
    assert early == pytest.approx(temperature.tau if temperature.kind == "linear" else expected, rel=1e-5)
