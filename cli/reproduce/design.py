"""The designs of an experiment: one per recipe with claims, stored in the folder of the runs before the first seed."""

from operator import attrgetter

from cli.reproduce.plan import Plan
from cli.settings.compose import compose_run
from cli.settings.recipes import recipe
from clipx.run.folder import identity_keys
from evaluation.claims.design import Design, describe_claims, hash_of
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
    return Design(name, hashed, tuple(found.arms), looks, describe_claims(name), tuple(config.data.evaluation))
