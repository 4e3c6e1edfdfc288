"""Try values of the settings that the papers tuned, in the miniatures, on held-out pairs: `make tune-mini`.

Each candidate trains once, with seed 100, which no claim uses. The score is R@1 (mean of both directions) on the
held-out training pairs, which no claim reads. Finished candidates are not trained again, so the command can be
interrupted. The best values are then written into the recipes by hand.
"""

import sys
from concurrent.futures import as_completed
from itertools import product
from pathlib import Path

from cli.eval.one import evaluate
from cli.launcher.process_pool import Pool
from cli.settings.compose import compose_eval, compose_run
from cli.train import train
from clipx.errors import RunDiverged
from clipx.run.folder import RunFolder

SEED, RUNS = 100, "runs/tuning"
RATES = tuple(f"optimizer.lr={rate}" for rate in ("1.0e-3", "2.0e-3", "4.0e-3", "8.0e-3"))
MORE_RATES = (*RATES, "optimizer.lr=1.6e-2")  # for arms where 8e-3 was much better than 4e-3
THREE_RATES = tuple(f"optimizer.lr={rate}" for rate in ("4.0e-3", "8.0e-3", "1.6e-2"))
REFINE_RATES = tuple(f"optimizer.lr={rate}" for rate in ("1.0e-5", "1.0e-4", "1.0e-3"))  # from trained weights
SINGLE = "positive,negative,cyclic,siglip,dcl,sogclr,nuclr,fastclip_v1,fastclip_v2,fastclip_v3,rank"
TAUGHT = "distill,align_clip,drrho"
TAUS = ("tau=0.01", "tau=0.03", "tau=0.05")
Grid = tuple[tuple[str, ...], ...]  # the candidates of each setting


def clip_run(recipe: str, rate: str) -> tuple[tuple[str, ...], ...]:
    """Return the settings of an arm whose initial weights and teacher are the candidate of `clip` with this rate."""
    run = f"{RUNS}/{recipe}-clip-optimizer.lr_{rate}/s{SEED}"
    return (f"model.init={run}",), (f"model.teacher={run}",)


# recipe -> arms and their grid. An arm without a grid of rates uses the best rate of `clip` (in gap_mini: of the arm
# of the same method). Grids of only tau or alpha were run after the best rate was written into the recipe.
GRIDS: dict[str, list[tuple[str, Grid]]] = {
    "clip_reg_mini": [("clip", (MORE_RATES,))],
    "counting_mini": [("clip", (RATES,))],
    "margin_mini": [("tau_07,start_01", (MORE_RATES,))],
    # paper 4, appendix E.1: the best learning rate for each method; here one arm of each method is tried
    "gap_mini": [("base,flt_4e-2,ts_s3,softplus,slrt,hs_1e-3,ss_5e-2,no_norm", (MORE_RATES,))],
    # paper 3, appendix H: hyperparameters tuned on a validation split; tau fixed, from 0.005 to 0.05
    "nuclr_mini": [
        ("clip", (RATES, TAUS)),
        ("siglip", (RATES,)),
        ("dcl,cyclip,sogclr,gcl,nuclr,nuclr_unbiased", (TAUS,)),
    ],
    # paper 5, section 6.1: three of the five alphas
    "wpse_mini": [("clip", (RATES,)), ("gaussian,imq", (("alpha=0.667", "alpha=0.5", "alpha=0.333"),))],
    # Every arm gets its own rate. Arms with a teacher come last, because their teacher is a run of `clip`: for
    # clip_refine the run with the rate given here, for the other arms the run with their own rate.
    "objectives_mini": [
        (f"clip,{SINGLE},siglip_group,keyword,multi_positive,negclip,{TAUGHT}", (THREE_RATES,)),
        ("clip_refine", (*clip_run("objectives_mini", "0.008"), REFINE_RATES)),
    ],
    "objectives_photos": [
        (f"clip,{SINGLE},{TAUGHT}", (RATES[:3],)),
        ("clip_refine", (*clip_run("objectives_photos", "0.001"), REFINE_RATES)),
    ],
    # on photographs; all arms of nuclr_photos with a fixed tau get CLIP's best tau
    "clip_reg_photos": [("clip", (RATES,))],
    "margin_photos": [("tau_07", (RATES,))],
    "gap_photos": [("base", (RATES,))],
    "nuclr_photos": [("clip,siglip", (RATES,)), ("clip", (TAUS,))],
}


SHORT = {  # short key in GRIDS -> override of `clipx train`; the first {} is the value, the second 1 - value
    "tau": "temperature.tau={}",
    "alpha": "model.points.alpha=[{},{}]",
}


def override(setting: str) -> str:
    """Return the override of `clipx train` for an entry of GRIDS."""
    key, _, value = setting.partition("=")
    return SHORT[key].format(value, round(1 - float(value), 3)) if key in SHORT else setting


def score(arguments: tuple[str, ...]) -> float:
    """Train with these arguments of `clipx train`; return the score in percent. Raises RunDiverged."""
    config = compose_run(list(arguments))
    run = RunFolder.of(config).path
    run.mkdir(parents=True, exist_ok=True)
    with (run / "output.log").open("a") as output:
        sys.stdout = sys.stderr = output
        train(config)
        rows = evaluate(compose_eval([f"checkpoint={run}", "datasets=[held_out]", "tasks=[retrieval]", "workers=0"]))
    found = [row.value for row in rows if row.metric.endswith("recall@1")]
    return 100 * sum(found) / len(found)


def candidates(name: str, arms: str, grid: Grid, given: list[str]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return (arm, settings) -> arguments of `clipx train`; all candidates get the overrides `given`."""
    common = (f"recipe={name}", f"seed={SEED}", f"runs={RUNS}", *given)
    return {
        (arm, *settings): (*common, f"arm={arm}", *map(override, settings))
        for arm in arms.split(",")
        for settings in product(*grid)
    }


def main() -> None:
    """Train the candidates of the recipes given as arguments (default: all miniatures); print one line for each.

    Arguments with = are overrides of all candidates: `python -m tests.bench.tune gap_photos data.root=FOLDER`.
    """
    given = [word for word in sys.argv[1:] if "=" in word]
    names = [word for word in sys.argv[1:] if "=" not in word]
    for name in names or [name for name in GRIDS if name.endswith("_mini")]:
        calls = {key: call for arms, grid in GRIDS[name] for key, call in candidates(name, arms, grid, given).items()}
        with Pool(["", ""]) as pool:
            futures = {pool.submit(score, call): key for key, call in calls.items()}
            for future in as_completed(futures):
                try:
                    found = f"{future.result():.2f}"
                except RunDiverged:
                    found = "diverged"
                print(name, *futures[future], found, flush=True)


if __name__ == "__main__":
    Path(RUNS).mkdir(parents=True, exist_ok=True)
    main()
