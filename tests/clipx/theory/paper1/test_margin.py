"""Claims 1.10 and 1.11 with the numbers of an independent check; the gradient against differences."""

from dataclasses import replace

import numpy as np
import pytest

from clipx.errors import UserError
from clipx.theory.claims import FAILS, HOLDS
from clipx.theory.experiment import parse
from clipx.theory.paper1.case_study import Array, equiangular, gradient, margin, one_close_pair, with_unique_features
from clipx.theory.paper1.margin import MarginResult, MarginSettings, claims, solve
from clipx.theory.paper1.square_loss import SCORES, bayes_optimum, clip_embedding, inner_product, top1_error


@pytest.fixture(scope="module")
def solved() -> MarginResult:
    return solve(MarginSettings())


def test_margins_after_training_are_those_of_the_independent_check(solved: MarginResult) -> None:
    expected = {0.0: [0.96, 0.55, 0.26, 0.14], 0.1: [0.72, 0.52, 0.50, 0.49], 1.0: [0.59, 0.50, 0.50, 0.50]}
    for lam, margins in expected.items():
        assert solved.final[lam] == pytest.approx(margins, abs=0.01)


def test_at_equal_steps_the_margin_is_proportional_to_tau(solved: MarginResult) -> None:
    in_taus = solved.equal.margin[-1] / np.array(solved.settings.taus)
    assert solved.equal.steps[-1] == 3000
    assert in_taus == pytest.approx([5.61] * 4, abs=0.005)


def test_both_claims_hold(solved: MarginResult) -> None:
    assert {claim.claim: claim.verdict for claim in claims(solved)} == {"1.10": HOLDS, "1.11": HOLDS}


def test_a_claim_that_fails_is_said_to_fail() -> None:
    """At tau far above gamma CLIP's margin is not small, whatever the theorem says about small tau."""
    order = claims(solve(MarginSettings(taus=(1.0, 0.5), equal_steps=200, more_steps=500)))[0]
    assert order.verdict == "does not hold"


def test_margins_that_do_not_follow_tau_decide_against_claim_1_10(solved: MarginResult) -> None:
    """The same margin at every tau, below gamma/2: what the other checks ask for."""
    flat = replace(solved, final=solved.final | {0.0: np.full(len(solved.settings.taus), 0.24)})
    assert claims(flat)[0].verdict == FAILS


def test_unique_features_do_not_take_the_margin_away() -> None:
    settings = MarginSettings(xi=0.5, zeta=0.5, taus=(0.05, 0.02), lambdas=(1.0,), equal_steps=200, more_steps=10)
    assert solve(settings).final[1.0] == pytest.approx([0.50, 0.50], abs=0.01)


@pytest.mark.parametrize("features", [(0.0, 0.0), (0.5, 0.3)])
def test_gradient_is_that_of_the_loss_written_with_loops(features: tuple[float, float]) -> None:
    pairs = with_unique_features(equiangular(3, 0.7), *features)
    n, tau, lam = len(pairs.z), 0.3, 0.2
    rng = np.random.default_rng(0)
    W, direction = rng.standard_normal((2, pairs.y.shape[1], pairs.x.shape[1]))

    def loss(W: Array) -> float:
        f = [[float(pairs.y[j] @ W @ pairs.x[i]) for j in range(n)] for i in range(n)]
        total = 0.0
        for i in range(n):
            total += np.log(sum(np.exp((f[i][j] - f[i][i]) / tau) for j in range(n))) / n
            total += np.log(sum(np.exp((f[j][i] - f[i][i]) / tau) for j in range(n))) / n
            total += lam * float(((W @ pairs.x[i] - pairs.y[i]) ** 2).sum()) / n
        return float(total)

    slope = (loss(W + 1e-5 * direction) - loss(W - 1e-5 * direction)) / 2e-5
    found = gradient(W[None], pairs, np.array([tau]), np.array([lam]))[0]
    assert (found * direction).sum() == pytest.approx(slope, rel=1e-7)


def test_the_margin_leaves_pairs_of_one_class_out() -> None:
    pairs = with_unique_features(equiangular(3, 0.5), 1.0, 1.0)
    W = np.eye(4)
    W[3, 3] = 0.0  # nothing from the unique features
    assert margin(W, pairs) == pytest.approx(0.5)


@pytest.mark.parametrize("make", [equiangular, one_close_pair])
def test_classes_are_unit_vectors_with_the_promised_inner_product(make: object) -> None:
    assert callable(make)
    v = make(5, 0.3)
    gram = v @ v.T
    assert np.diag(gram) == pytest.approx(np.ones(5))
    assert gram[~np.eye(5, dtype=bool)].max() == pytest.approx(0.7)


@pytest.mark.parametrize("K", [2, 3, 6])
@pytest.mark.parametrize("score", SCORES)
def test_square_loss_errs_as_often_as_its_proof_says(K: int, score: str) -> None:
    """With one close pair exactly 2/K * 1/3 * 2/3 of the draws go wrong, which is above 1/(3K)."""
    v = one_close_pair(K, 0.3)
    assert top1_error(bayes_optimum(v), v, SCORES[score]) == pytest.approx(4 / (9 * K), abs=1e-12)


def test_clip_errs_nowhere_on_the_same_data() -> None:
    v = one_close_pair(4, 0.3)
    assert top1_error(clip_embedding(v, tau=0.05, steps=400), v, inner_product) == 0


def test_errors_of_the_square_loss_are_not_found_where_gamma_is_large() -> None:
    v = one_close_pair(4, 0.9)
    assert top1_error(bayes_optimum(v), v, inner_product) == 0


BAD = {
    "K": "1",
    "gamma": "2.5",
    "gamma_square": "0.4",
    "taus": "0.1,0",
    "lambdas": "-1",
    "xi": "-1",
    "equal_steps": "0",
}


@pytest.mark.parametrize("key", BAD)
def test_settings_that_make_no_problem_are_named(key: str) -> None:
    with pytest.raises(UserError, match=f"^{key}={BAD[key]} is out of range; allowed: "):
        parse(MarginSettings, {key: BAD[key]})


def test_more_than_simplex_angles_do_not_exist() -> None:
    with pytest.raises(UserError, match=r"gamma=1.5 .* at most K/\(K-1\) = 1.2 for K=6"):
        parse(MarginSettings, {"gamma": "1.5"})
