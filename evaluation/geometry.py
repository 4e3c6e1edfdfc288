"""Geometry metrics for evaluation: the same functions as in the geometry probe during training."""

from clipx.geometry import alignment, alpha_hat, margins, min_margin, modality_gap, uniformity

__all__ = ["alignment", "alpha_hat", "margins", "min_margin", "modality_gap", "uniformity"]
