"""Table of all claims, collected from one file per paper."""

from evaluation.claims.papers import paper1, paper2, paper3, paper4, paper5
from evaluation.claims.types import Claim

CLAIMS: tuple[Claim, ...] = (*paper1.CLAIMS, *paper2.CLAIMS, *paper3.CLAIMS, *paper4.CLAIMS, *paper5.CLAIMS)
RECIPES = {recipe for claim in CLAIMS for recipe in claim.recipes}


def claims_of(recipe: str) -> list[Claim]:
    """Return the claims that runs of a recipe test."""
    return [claim for claim in CLAIMS if recipe in claim.recipes]
