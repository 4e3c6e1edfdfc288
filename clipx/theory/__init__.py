"""The papers' toy problems, exact, in float64, in seconds: a module and a line of THEORY each."""

from typing import Any

from clipx.theory.experiment import Experiment
from clipx.theory.paper1 import margin
from clipx.theory.paper1 import margin_figure as margin_figures
from clipx.theory.paper2 import robust_g, true_negatives
from clipx.theory.paper2 import robust_g_figure as robust_g_figures
from clipx.theory.paper2 import true_negatives_figure as true_negatives_figures
from clipx.theory.paper3 import popularity
from clipx.theory.paper3 import popularity_figure as popularity_figures
from clipx.theory.paper4 import gap, gap_claims
from clipx.theory.paper4 import gap_figure as gap_figures
from clipx.theory.paper5 import pmi
from clipx.theory.paper5 import pmi_figure as pmi_figures

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
