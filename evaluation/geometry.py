"""The geometry of an evaluated model, by the functions that training traces it with."""

from clipx.geometry import alignment, alpha_hat, margins, min_margin, modality_gap, uniformity

__all__ = ["alignment", "alpha_hat", "margins", "min_margin", "modality_gap", "uniformity"]
