"""Objectives by name. A new term is one file, one line of TERMS and one test file."""

from clipx.objectives.base import Objective, Term
from clipx.objectives.build import build_objective
from clipx.objectives.clip import ClipTerm
from clipx.objectives.cyclic import CyclicCrossmodalTerm, CyclicInmodalTerm
from clipx.objectives.dcl import DclTerm
from clipx.objectives.keyword import KeywordTerm
from clipx.objectives.nuclr import NuclrTerm
from clipx.objectives.pairwise_means import NegativeTerm, PositiveTerm
from clipx.objectives.siglip import SiglipTerm
from clipx.objectives.sogclr import SogclrTerm

TERMS: dict[str, type[Term]] = {
    "clip": ClipTerm,
    "positive": PositiveTerm,
    "negative": NegativeTerm,
    "cyclic_inmodal": CyclicInmodalTerm,
    "cyclic_crossmodal": CyclicCrossmodalTerm,
    "siglip": SiglipTerm,
    "dcl": DclTerm,
    "keyword": KeywordTerm,
    "sogclr": SogclrTerm,
    "nuclr": NuclrTerm,
}


def build(terms: dict[str, dict[str, object]], num_samples: int) -> Objective:
    """Build a weighted sum of terms, e.g. `build({"clip": {}, "positive": {"weight": 0.1}}, num_samples=n)`.

    Args:
        terms: name -> parameters; `weight` (default 1.0) multiplies the term.
        num_samples: n, number of training pairs.

    Raises:
        UserError: no term, an unknown term or parameter, or a value of the wrong type or out of range.
    """
    return build_objective(TERMS, terms, num_samples)
