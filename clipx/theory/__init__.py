"""The papers' toy problems, computed in float64 in at most a minute each."""

from clipx.theory.experiment import Experiment
from clipx.theory.paper1 import margin, margin_figure
from clipx.theory.paper2 import robust_g, robust_g_figure, true_negatives, true_negatives_figure
from clipx.theory.paper3 import popularity, popularity_figure
from clipx.theory.paper4 import gap, gap_figure
from clipx.theory.paper5 import pmi, pmi_figure

THEORY: dict[str, Experiment] = {
    "margin": Experiment(margin.MarginSettings, margin.solve, margin.claims, margin_figure.draw),
    "robust_g": Experiment(robust_g.RobustGSettings, robust_g.solve, robust_g.claims, robust_g_figure.draw),
    "true_negatives": Experiment(
        true_negatives.TrueNegativesSettings, true_negatives.solve, true_negatives.claims, true_negatives_figure.draw
    ),
    "popularity": Experiment(
        popularity.PopularitySettings, popularity.solve, popularity.claims, popularity_figure.draw
    ),
    "gap_flow": Experiment(gap.GapSettings, gap.solve, gap.claims, gap_figure.draw),
    "pmi": Experiment(pmi.PmiSettings, pmi.solve, pmi.claims, pmi_figure.draw),
}
