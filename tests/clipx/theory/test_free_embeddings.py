"""Free embeddings: the joint distribution, the training of every objective, the bound."""

from dataclasses import replace

import pytest
import torch

from clipx import objectives
from clipx.errors import UserError
from clipx.theory.claims import HOLDS
from clipx.theory.experiment import parse
from clipx.theory.free_embeddings import FreeEmbeddingSettings, build_joint, claims, evaluate, known_objectives, solve
from clipx.theory.paper5.information import mutual_information, pointwise_mutual_information
from clipx.theory.paper5.pmi import nce

SMALL = FreeEmbeddingSettings(K=8, m=2, n=256, batch_size=64, epochs=12, E=6, taus=(0.2,), noise=0.1)


def test_training_pairs_have_the_popularity_and_the_noise_of_the_settings_and_every_second_text_has_a_label() -> None:
    settings = FreeEmbeddingSettings(K=5, m=3, skew=1.0, noise=0.25, n=40000)
    joint = build_joint(settings, torch.Generator().manual_seed(0))
    assert float(joint.p.sum()) == pytest.approx(1)
    image, text = joint.concept[joint.image], joint.concept[joint.text]
    shares = torch.bincount(image, minlength=5).double() / len(image)
    assert torch.allclose(shares, joint.popularity, atol=0.01)
    assert joint.popularity[0] / joint.popularity[4] == pytest.approx(5)
    matched = 0.75 + 0.25 * float(joint.popularity.square().sum())  # a mismatched pair can share its concept by chance
    assert float((image == text).double().mean()) == pytest.approx(matched, abs=0.01)
    # of the texts 0, 1 and 2 of a concept, 0 and 2 name it (label: concept + 1) and 1 does not (label: 0)
    assert set(joint.label[joint.text % 3 == 1].tolist()) == {0}
    assert torch.equal(joint.label[joint.text % 3 == 0], text[joint.text % 3 == 0] + 1)


def test_the_pmi_of_the_joint_distribution_reaches_the_bound() -> None:
    p = build_joint(SMALL, torch.Generator().manual_seed(0)).p.numpy()
    assert nce(pointwise_mutual_information(p), p)[0] == pytest.approx(-mutual_information(p), abs=1e-12)


def test_clip_retrieves_better_than_random_embeddings() -> None:
    result = solve(replace(SMALL, objectives=("clip",)))
    assert [trial.temperature for trial in result.trials] == ["0.2", "learned"]
    joint = build_joint(SMALL, torch.Generator().manual_seed(0))
    raw = torch.nn.functional.normalize(torch.randn(2, 16, 6, dtype=torch.float64), dim=2)
    chance = evaluate(raw[0], raw[1], torch.tensor(5.0), joint)["retrieval"]
    assert all(trial.metrics["retrieval"] > 0.9 > 2 * chance for trial in result.trials)
    # distances of the loss to its bound: "best tau" at the best temperature, "excess" at the trial's own
    assert all(0 <= trial.metrics["best tau"] <= trial.metrics["excess"] for trial in result.trials)
    assert [claim.verdict for claim in claims(result)] == [HOLDS]


@pytest.mark.parametrize("term", objectives.TERMS)
def test_every_term_trains_with_finite_metrics(term: str) -> None:
    name = next(name for name, terms in known_objectives().items() if list(terms) == [term])
    settings = FreeEmbeddingSettings(K=6, m=2, n=64, batch_size=32, epochs=2, taus=(0.2,), objectives=(name,))
    fixed, _ = solve(settings).trials
    assert fixed.temperature == "0.2"
    assert all(abs(value) < 1e6 for value in fixed.metrics.values())


def test_an_unknown_objective_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="objectives=clipp is not known; did you mean 'clip'"):
        solve(parse(FreeEmbeddingSettings, {"objectives": "clipp"}))
