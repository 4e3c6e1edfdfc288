"""Geometry metrics for evaluation; the geometry probe uses some of them during training."""

from clipx.geometry import alignment, alpha_hat, distribution_gap, margins, min_margin, modality_gap, uniformity

__all__ = ["alignment", "alpha_hat", "distribution_gap", "margins", "min_margin", "modality_gap", "uniformity"]
