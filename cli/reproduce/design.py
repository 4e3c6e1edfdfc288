"""The designs of an experiment: one per recipe with claims, stored in the folder of the runs before the first seed."""

from operator import attrgetter

from cli.reproduce.plan import Plan
from cli.settings.compose import compose_run, recipe
from clipx.run.directory import identity_keys
from evaluation.claims.design import Design, describe_claims, hash_of
from evaluation.claims.measures import canonical_name
from evaluation.claims.table import claims_of

OF_A_RUN = ("name", "arm", "seed")


def designs_of(plan: Plan) -> list[Design]:
    """Return the design of each recipe that tests claims.

    A design contains all arms of its recipe, so that arms= may run a part of them. It leaves out settings that
    change no result (paths, devices, workers, saving, logging).
    """
    return [_design(name, looks, plan.settings) for name, looks in plan.looks.items() if claims_of(name)]


def _design(name: str, looks: tuple[int, ...], settings: list[str]) -> Design:
    found, config = recipe(name), compose_run([f"recipe={name}", *settings])
    values = {key: attrgetter(key)(config) for key in identity_keys() if key not in OF_A_RUN}
    hashed = hash_of({"settings": values, "arms": found.arms, "evaluations": found.evaluations})
    sets = tuple(_set_name(spec) for spec in config.data.evaluation)
    return Design(name, hashed, tuple(found.arms), looks, describe_claims(name), sets)


def _set_name(spec: str) -> str:
    """Return the canonical name of KIND:FOLDER or NAME:FOLDER; results have the same name."""
    from evaluation.datasets.named import NAMED  # imported here because it imports torch

    kind, _, place = spec.partition(":")
    return canonical_name(kind if kind in NAMED else place)
