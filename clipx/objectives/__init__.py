"""Loss terms by name. A new term needs a file, an import and a line of TERMS here, and a test file."""

from clipx.objectives.base import Objective, Term, build_objective
from clipx.objectives.centroid import CentroidUniformityTerm
from clipx.objectives.clip import ClipTerm, MultiPositiveTerm, NegclipTerm
from clipx.objectives.counterfactual import CounterfactualTerm
from clipx.objectives.dcl import DclTerm
from clipx.objectives.fastclip import DrrhoTerm, FastClipV1Term, FastClipV2Term, FastClipV3Term
from clipx.objectives.glofnd import GlofndTerm
from clipx.objectives.keyword import KeywordTerm
from clipx.objectives.neuclip import NeuclipTerm
from clipx.objectives.nuclr import NuclrTerm
from clipx.objectives.pairwise import CyclicCrossmodalTerm, CyclicInmodalTerm, NegativeTerm, PositiveTerm
from clipx.objectives.rank import RankTerm
from clipx.objectives.siglip import SiglipTerm
from clipx.objectives.sogclr import SogclrTerm
from clipx.objectives.teacher import AlignClipTerm, ClipRefineTerm, DistillTerm, FeatureDistillTerm

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
    "fastclip_v1": FastClipV1Term,
    "fastclip_v2": FastClipV2Term,
    "fastclip_v3": FastClipV3Term,
    "multi_positive": MultiPositiveTerm,
    "negclip": NegclipTerm,
    "rank": RankTerm,
    "distill": DistillTerm,
    "clip_refine": ClipRefineTerm,
    "align_clip": AlignClipTerm,
    "drrho": DrrhoTerm,
    "glofnd": GlofndTerm,
    "neuclip": NeuclipTerm,
    "centroid_uniformity": CentroidUniformityTerm,
    "counterfactual": CounterfactualTerm,
    "feature_distill": FeatureDistillTerm,
}


def build(terms: dict[str, dict[str, object]], num_samples: int) -> Objective:
    """Build a weighted sum of terms, e.g. `build({"clip": {}, "positive": {"weight": 0.1}}, num_samples=n)`.

    Args:
        terms: name -> parameters; `weight` (default 1.0) multiplies the term.
        num_samples: n, number of training pairs.

    Raises UserError: no term, an unknown term or parameter, or a value of the wrong type or out of range.
    """
    return build_objective(TERMS, terms, num_samples)
