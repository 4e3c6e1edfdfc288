"""Error rates of the rule under optional stopping, in simulated experiments; `make bench-rule` runs all cases."""

import re
from pathlib import Path

import pytest

from evaluation.claims.measures import GAP
from evaluation.claims.types import more
from evaluation.claims.verdict import mean_estimate, verdict_of
from tests.bench.rule import (
    BEFORE,
    CASES,
    NEW,
    PRINTED,
    SEEDS,
    power,
    print_papers,
    printed_parts,
    simulated,
)

DOCS = Path(__file__).parents[3] / "docs" / "claims.md"

EXPERIMENTS = 600
LIMIT = 0.025 + 3 * (0.025 * 0.975 / EXPERIMENTS) ** 0.5  # three standard errors above 2.5%
FAILING = "two groups"  # exceeds the error rate without failed_loss, tested below
TESTED = [(case, seeds) for case in CASES for seeds in SEEDS if seeds != FAILING and "Holm" not in case]
# the true share of the simulated seeds is known for normal ones only
TESTED = [(case, seeds) for case, seeds in TESTED if "share" not in case or seeds == "normal"]
QUICK = ("one difference", "normal"), ("claim of 2 parts, one baseline", "normal")  # the others take 40 s together


@pytest.mark.parametrize(
    ("case", "seeds"), [pytest.param(*names, marks=() if names in QUICK else pytest.mark.long) for names in TESTED]
)
def test_false_verdicts_over_all_looks_stay_below_two_and_a_half_per_cent(case: str, seeds: str) -> None:
    assert max(simulated(case, seeds, EXPERIMENTS)) <= LIMIT


def test_seeds_of_two_groups_exceed_the_error_rate_until_there_are_enough_to_see_both() -> None:
    """docs/claims.md states this, and what a recipe does against it: failed_loss, or one look at 20 seeds."""
    assert simulated("one difference", FAILING, EXPERIMENTS)[1] > 0.1
    assert max(simulated("one difference, one look at 20", FAILING, EXPERIMENTS)) <= LIMIT


def test_the_worked_example_of_the_documentation_has_its_interval() -> None:
    (row,) = re.findall(r"\| accuracy with R minus [^|]* \|(.*)\|\n", DOCS.read_text())
    points = [float(cell) for cell in row.split("|")]
    for seeds, low, high in ((8, 0.90, 1.60), (3, -8.0, 10.8)):
        found = mean_estimate(more("a", "b", GAP, 0.5), points[:seeds], NEW[seeds])
        assert (found.low, found.high) == pytest.approx((low, high), abs=0.005 if seeds == 8 else 0.05)
        assert verdict_of(found, NEW[seeds]) == ("holds" if seeds == 8 else "undecided")


def test_power_grows_with_seeds_and_effect_and_exceeds_that_of_equal_error_rates() -> None:
    weak, strong = power(1.0, NEW, 300), power(2.5, NEW, 300)
    assert weak == sorted(weak) and all(a < b for a, b in zip(weak, strong, strict=True))
    assert strong[2] > 0.95 and weak[2] > power(1.0, BEFORE, 300)[2] + 0.2


def test_the_papers_printed_means_and_spreads_decide_few_claims() -> None:
    found = {
        (claim, recipe, part.label.split(",")[0]): verdict_of(estimate, PRINTED)
        for claim, recipe, part, estimate in printed_parts()
    }
    assert found["3.1", "nuclr_cc3m", "sogclr − clip"] == "holds"
    assert found["3.2", "nuclr_cc3m", "nuclr − sogclr"] == "undecided"
    assert found["3.2", "nuclr_cc12m", "nuclr − sogclr"] == "undecided"
    assert found["2.1", "counting_datacomp", "own_log1p_1000 − clip"] == "undecided"


def test_docs_claims_shows_the_verdicts_on_the_papers_printed_parts(capsys: pytest.CaptureFixture[str]) -> None:
    print_papers()
    assert capsys.readouterr().out.strip() in DOCS.read_text()
