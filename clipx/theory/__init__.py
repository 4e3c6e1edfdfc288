"""The papers' toy problems, computed in float64 in at most a minute each."""

from clipx.theory import paper1, paper3, paper4, paper5
from clipx.theory import paper2_robust_g as robust_g
from clipx.theory import paper2_true_negatives as negatives
from clipx.theory.experiment import Experiment

THEORY: dict[str, Experiment] = {
    "margin": Experiment(paper1.MarginSettings, paper1.solve, paper1.claims, paper1.figure),
    "robust_g": Experiment(robust_g.RobustGSettings, robust_g.solve, robust_g.claims, robust_g.figure),
    "true_negatives": Experiment(negatives.TrueNegativesSettings, negatives.solve, negatives.claims, negatives.figure),
    "popularity": Experiment(paper3.PopularitySettings, paper3.solve, paper3.claims, paper3.figure),
    "gap_flow": Experiment(paper4.GapSettings, paper4.solve, paper4.claims, paper4.figure),
    "pmi": Experiment(paper5.PmiSettings, paper5.solve, paper5.claims, paper5.figure),
}
