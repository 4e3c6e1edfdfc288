"""Sweeps (`clipx train -m`): all jobs are checked before the first one trains."""

from collections.abc import Callable
from itertools import product
from typing import Any

from clipx.config.schema import RunConfig
from clipx.errors import UserError


def check_jobs(parsed: list[Any], compose: Callable[[list[str]], RunConfig]) -> None:
    """Raise UserError if a job has wrong settings, or two jobs would share a run directory.

    `parsed`: the overrides as Hydra parses them; `compose` returns the config of a job from its overrides.
    """
    if any(override.key_or_group == "hydra/sweeper" for override in parsed):
        return  # another sweeper may choose the values one after the other
    problems, swept_of = list[str](), dict[tuple[str, int], str]()
    given = {override.input_line for override in parsed}
    for job in _jobs(parsed):
        swept = " ".join(override for override in job if override not in given)
        try:
            config = compose(job)
        except UserError as error:
            problems.append(f"{swept}: {error}")
            continue
        other = swept_of.setdefault((config.name, config.seed), swept)
        if other != swept:
            problems.append(f"{other} and {swept} would share the folder {config.name}/s{config.seed}: leave name= out")
    if problems:
        raise UserError("; ".join(problems))


def refuse(parsed: list[Any]) -> None:
    """Raise UserError if a key has several values."""
    if several := next((override for override in parsed if override.is_sweep_override()), None):
        raise UserError(f"{several.input_line.lstrip('+')}: several values need clipx train -m")


def _jobs(parsed: list[Any]) -> list[list[str]]:
    """Return the overrides of each job, as Hydra's default sweeper splits them."""
    choices = []
    for override in parsed:
        values = [override.input_line]
        if override.is_sweep_override() and override.is_discrete_sweep():
            values = [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
        choices.append(values)
    return [list(job) for job in product(*choices)]
