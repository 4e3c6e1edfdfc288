"""Free embeddings: the distribution is what it says, every objective trains, nothing beats the bound."""

from functools import partial

import pytest
import torch

from clipx import objectives
from clipx.errors import UserError
from clipx.theory.claims import HOLDS
from clipx.theory.experiment import parse
from clipx.theory.free_embeddings import Factory, FreeSettings, Memory, claims, measured, solve
from clipx.theory.joint import make, nce

SMALL = FreeSettings(K=8, m=2, n=256, batch_size=64, epochs=12, E=6, taus=(0.2,), noise=0.1)


def known(**terms: dict[str, dict[str, object]]) -> dict[str, Factory]:
    return {name: partial(objectives.build, given) for name, given in terms.items()}


def test_popularity_noise_and_false_negatives_are_as_set() -> None:
    joint = make(K=5, m=3, skew=1.0, noise=0.25, n=40000, generator=torch.Generator().manual_seed(0))
    assert float(joint.p.sum()) == pytest.approx(1)
    image, text = joint.concept[joint.image], joint.concept[joint.text]
    shares = torch.bincount(image, minlength=5).double() / len(image)
    assert torch.allclose(shares, joint.popularity, atol=0.01)
    assert joint.popularity[0] / joint.popularity[4] == pytest.approx(5)
    matched = 0.75 + 0.25 * float(joint.popularity.square().sum())  # noise hits the own concept by chance
    assert float((image == text).double().mean()) == pytest.approx(matched, abs=0.01)
    assert set(joint.label[joint.text % 3 == 1].tolist()) == {0}
    assert torch.equal(joint.label[joint.text % 3 == 0], text[joint.text % 3 == 0] + 1)


def test_bound_is_met_by_the_similarity_that_the_distribution_asks_for() -> None:
    joint = make(K=4, m=2, skew=0.5, noise=0.2, n=10, generator=torch.Generator().manual_seed(0))
    pmi = torch.log(joint.p / torch.outer(joint.p.sum(1), joint.p.sum(0)))
    assert float(nce(pmi, joint.p)) == pytest.approx(-joint.mutual_information, abs=1e-12)


def test_clip_retrieves_what_random_embeddings_do_not() -> None:
    result = solve(SMALL, known(clip={"clip": {}}))
    assert [row.temperature for row in result.rows] == ["0.2", "learned"]
    joint = make(SMALL.K, SMALL.m, SMALL.skew, SMALL.noise, SMALL.n, torch.Generator().manual_seed(0))
    raw = torch.nn.functional.normalize(torch.randn(2, 16, 6, dtype=torch.float64), dim=2)
    chance = measured(raw[0], raw[1], torch.tensor(5.0), joint)["retrieval"]
    assert all(row.numbers["retrieval"] > 0.9 > 2 * chance for row in result.rows)
    assert all(0 <= row.numbers["best tau"] <= row.numbers["excess"] for row in result.rows)
    assert [claim.verdict for claim in claims(result)] == [HOLDS]


@pytest.mark.parametrize("term", objectives.TERMS)
def test_every_term_runs_and_stays_finite(term: str) -> None:
    (row,) = [r for r in solve(parse(FreeSettings, SHORT), known(tried={term: {}})).rows if r.temperature == "0.2"]
    assert all(abs(value) < 1e6 for value in row.numbers.values())


SHORT = {"K": "6", "m": "2", "n": "64", "batch_size": "32", "epochs": "2", "taus": "0.2"}


def test_rows_of_the_memory_are_those_of_their_samples() -> None:
    memory = Memory({"u": 0.5}, 4)
    memory.write(torch.tensor([2, 0]), {"u": torch.tensor([3.0, 1.0], dtype=torch.float64)})
    assert memory.read(torch.arange(4))["u"].tolist() == [1.0, 0.5, 3.0, 0.5]
    assert memory.max("u") == 3.0


BAD = {"K": "1", "n": "0", "taus": "0", "tau0": "-1", "noise": "0", "batch_size": "4096", "epochs": "0", "lr": "0"}


@pytest.mark.parametrize("key", BAD)
def test_settings_that_make_no_problem_are_named(key: str) -> None:
    with pytest.raises(UserError, match=f"^{key}={BAD[key]} is out of range; allowed: "):
        parse(FreeSettings, {key: BAD[key]})


def test_an_unknown_objective_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match="objectives=clipp is not known; did you mean 'clip'"):
        solve(parse(FreeSettings, {"objectives": "clipp"}), known(clip={"clip": {}}))
