"""The papers' toy problems, exact, in float64, in seconds: a module and a line of THEORY each."""

from typing import Any

from clipx.theory import gap, gap_claims, margin, pmi, popularity, robust_g, true_negatives
from clipx.theory.experiment import Experiment
from clipx.theory.figures import gap as gap_figures
from clipx.theory.figures import margin as margin_figures
from clipx.theory.figures import pmi as pmi_figures
from clipx.theory.figures import popularity as popularity_figures
from clipx.theory.figures import robust_g as robust_g_figures
from clipx.theory.figures import true_negatives as true_negatives_figures

THEORY: dict[str, Experiment[Any, Any]] = {
    "margin": Experiment(margin.MarginSettings, margin.solve, margin.claims, margin_figures.draw),
    "robust_g": Experiment(robust_g.RobustGSettings, robust_g.solve, robust_g.claims, robust_g_figures.draw),
    "true_negatives": Experiment(
        true_negatives.TrueNegativesSettings, true_negatives.solve, true_negatives.claims, true_negatives_figures.draw
    ),
    "popularity": Experiment(
        popularity.PopularitySettings, popularity.solve, popularity.claims, popularity_figures.draw
    ),
    "gap_flow": Experiment(gap.GapSettings, gap.solve, gap_claims.claims, gap_figures.draw),
    "pmi": Experiment(pmi.PmiSettings, pmi.solve, pmi.claims, pmi_figures.draw),
}
