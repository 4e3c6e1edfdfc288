"""Claims 3.13 and 5.11: numbers by hand, and the verdicts on both sides of their bounds."""

import pytest

from clipx.theory.claims import FAILS, HOLDS
from evaluation.analyses import footprint
from evaluation.analyses.footprint import size_claim, state_claim


def test_nuclr_adds_one_zeta_per_image_and_text() -> None:
    (added,) = state_claim().checks
    assert added.measured == pytest.approx(2 * 4 * 12e6 / 1e6)
    assert state_claim().verdict == HOLDS


def test_more_pairs_exceed_the_stated_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "PAIRS", 13_000_000)
    assert state_claim().verdict == FAILS


@pytest.mark.parametrize(("imq", "verdict"), [(149_660_000, HOLDS), (152_000_000, FAILS)])
def test_every_arm_is_compared_with_the_reference(imq: int, verdict: str) -> None:
    found = size_claim({"clip": 149_620_000, "gaussian": 149_660_000, "imq": imq})
    assert found.verdict == verdict
    assert [check.name for check in found.checks] == ["parameters of gaussian / clip", "parameters of imq / clip"]
    assert found.checks[0].measured == pytest.approx(1.000267, abs=1e-6)
