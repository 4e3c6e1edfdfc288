"""Error rates of the rule under optional stopping, in simulated experiments; `make bench-rule` runs all cases."""

from pathlib import Path

import pytest

from tests.bench.rule import Case, alike, cases, noisy, of_means, own_numbers, plain, power, print_papers, rates

EXPERIMENTS = 1500
LIMIT = 0.025 + 3 * (0.025 * 0.975 / EXPERIMENTS) ** 0.5  # three standard errors above 2.5%
CASES = [case for case in cases() if not case.name.startswith(("3 ", "4 ", "26 "))]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_false_verdicts_at_any_look_stay_below_two_and_a_half_per_cent(case: Case) -> None:
    for verdict, rate in rates(case.simulate, EXPERIMENTS).items():
        assert rate <= LIMIT, verdict


def test_plain_intervals_at_every_look_exceed_the_error_rate() -> None:
    found = rates(plain(noisy(2, 1.0), 2.0, 2.0), EXPERIMENTS)
    assert found["holds"] > 0.05 and found["does not hold"] > 0.05


def test_pooling_without_the_test_of_equal_variances_exceeds_the_error_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.claims.estimate.POOL_ABOVE", -1.0)
    assert rates(of_means(alike(8, 0.8), 2.0, 2.0), EXPERIMENTS)["holds"] > 0.08


def test_power_grows_with_seeds_and_pooling_helps_with_three() -> None:
    alone, pooled = power(2, 2.5, 600), power(6, 2.5, 600)
    assert alone == sorted(alone) and pooled[0] > 1.3 * alone[0]
    assert min(alone[2], pooled[2]) > 0.95


def test_the_papers_own_spreads_decide_the_claims_that_they_can() -> None:
    found = {(one.claim, one.recipe, one.label.split(",")[0]): one.verdict for one in own_numbers()}
    assert found["3.1", "nuclr_cc3m", "sogclr − clip"] == "holds"
    assert found["3.2", "nuclr_cc3m", "nuclr − sogclr"] == "undecided"
    assert found["3.2", "nuclr_cc12m", "nuclr − sogclr"] == "undecided"
    assert found["2.1", "counting_datacomp", "own_log1p_1000 − clip"] == "undecided"


def test_the_docs_show_these_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    print_papers()
    assert capsys.readouterr().out.strip() in Path("docs/claims.md").read_text()
