"""Write clipx/training/counted.csv: the FLOPs of a step in each recipe at the papers' scale, and of miniatures' towers.

Run with `python -m tests.bench.counted` after a change of these recipes, of a tower or of an objective.
"""

import csv
import sys
from functools import cache

from cli.settings.compose import compose_run
from cli.settings.recipes import recipe
from clipx.config.schema import RunConfig
from clipx.training.cost import COUNTED, StepCost, count_step, step_key

PAPERS = ["clip_reg_cc3m", "margin_mscoco", "counting_datacomp", "gap_mscoco"]
PAPERS += ["nuclr_cc3m", "nuclr_cc12m", "wpse_cc3m", "wpse_cc12m"]
FULL_SCALE = [(name, arm) for name in PAPERS for arm in recipe(name).arms]
FULL_SCALE += [("gap_dynamics_mscoco", "learned"), ("gap_init_mscoco", "")]
# a report needs the FLOPs of their towers, which do not depend on the objective
ARMS = "clip_reg_mini:clip clip_reg_mini:second_clip counting_mini:clip gap_mini:base gap_dynamics_mini:learned "
ARMS += "gap_init_mini: margin_mini:start_01 scaling_mini:clip wpse_mini:clip wpse_mini:gaussian wpse_mini:imq "
ARMS += "wpse_mini:linear"
MINIATURES = [(name, arm) for name, _, arm in (one.partition(":") for one in ARMS.split())]
COLUMNS = ("tower_flops", "objective_flops", "values", "trained", "width")


@cache
def by_key() -> dict[str, RunConfig]:
    """Return step key -> config of the first arm with this key. Arms with the same key take the same FLOPs."""
    found: dict[str, RunConfig] = {}
    for name, arm in FULL_SCALE + MINIATURES:
        config = compose_run([f"recipe={name}", *([f"arm={arm}"] if arm else [])])
        if (name, arm) in MINIATURES:
            config.objective = {"clip": {}}
        found.setdefault(step_key(config), config)
    return found


def row(cost: StepCost) -> list[int]:
    """Return the values of COLUMNS."""
    return [cost.tower_flops, cost.objective_flops, cost.num_weights, cost.num_trainable, cost.width]


def main() -> None:
    with COUNTED.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["step", *COLUMNS])
        for key, config in by_key().items():
            table.writerow([key, *row(count_step(config))])
            print(key, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
