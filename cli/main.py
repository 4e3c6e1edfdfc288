"""The `clipx` command. Subcommands are imported when called, so that help is fast.

Every subcommand raises UserError for wrong input and Fault for an external failure; cli.exit_codes prints them.
"""

import ast
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from cli.exit_codes import ends_on_ctrl_c, exit_code_of
from cli.settings.arguments import CheckOptions, permit_plugins, split_config_dir, take_options, with_home
from clipx.errors import UserError
from clipx.utils.plugins import load_plugins
from clipx.utils.registry import lookup

if TYPE_CHECKING:
    from clipx.config.schema import RunConfig

HELP = """\
clipx: train, evaluate and compare contrastive image-text objectives

  clipx train recipe=NAME [key=value ...]    train or resume a run; -m sweeps, --cfg job prints the config
  clipx eval RUN... [datasets=[..]]          evaluate runs, or model=open_clip:NAME/TAG, model=hf-hub:USER/NAME
  clipx report RUN_OR_DIR...                 tables and figures as Markdown, HTML and CSV; out=DIR
  clipx report claims RUN_OR_DIR...          verdicts on the papers' claims, with effects and intervals
  clipx report power RUN_OR_DIR...           seeds and hours that would decide the undecided claims
  clipx report compare RUN_OR_DIR...         methods under the same conditions, ranked, with paired intervals
  clipx report missing-objects FOLDER        objects that COCO's captions leave out (claim 1.12)
  clipx reproduce recipe=NAME                train, evaluate and report all arms and seeds of a recipe
  clipx watch [RUN_OR_DIR...]                show loss, tau, gap, score and time left of running runs
  clipx tune recipe=NAME                     find each arm's learning rate on held-out pairs, with equal budgets
  clipx check recipe=NAME [key=value ...]    build the run and do a trial step: parameters, memory, missing data
  clipx export RUN out=FILE.safetensors      weights and configuration for open_clip
  clipx bench NAME                           time the steps of NAME's arms: the papers' claims on cost
  clipx bench recipe=NAME [arms=a,b]         time the steps of a recipe's arms
  clipx theory [NAME] [key=value ...]        solve the papers' toy problems: claims, verdicts, figures
  clipx data index|verify|keywords FOLDER    index shards; check every sample; count captions per keyword
  clipx data pull|prepare NAME               get evaluation sets
  clipx data embed recipe=NAME out=DIR       embed all pairs of a recipe's data by its frozen towers
  clipx ls [recipes|terms|towers|data|tasks|claims|theory]   list what is available
  clipx ls settings [PREFIX]                 list settings: default, unit, range, meaning
  clipx ls runs [DIR...]                     list runs: steps, and the settings that differ from their recipe

  clipx COMMAND --help                       more about one command

  --config-dir DIR                           folder of your own recipes, for all commands with recipe=NAME
  plugins=[MODULE,...]                       your own terms, tasks, towers and sources, for all commands

  clipx completion bash|zsh                  print the script that completes commands, settings and names at TAB;
                                             in .bashrc or .zshrc: eval "$(clipx completion bash)"
  clipx --version                            print the version

Start with:  clipx train recipe=demo
"""


def train(arguments: list[str]) -> None:
    """clipx train recipe=NAME [key=value ...] [-m] [--cfg job] [--config-dir DIR]

    Trains in runs/<name>/s<seed>/. Run the same command again to resume. The default name of a run is its recipe and
    its overrides; name=NAME sets it. arm=NAME selects an arm of the recipe.
    Exit code 2: wrong input; 3: diverged; 75: stopped early and saved.
    clipx ls settings lists all settings; --cfg job prints those of this run; -m key=a,b,c sweeps over values.
    --config-dir DIR adds the recipes (YAML files) in DIR.
    launch.slurm='SBATCH_OPTIONS' submits the runs to SLURM and returns; launch.submit=false prints the jobs instead.
    """
    from cli.settings import compose
    from clipx.data.sources.files import check_root
    from clipx.run.log_writers import check_wandb

    if runs := compose.submitted_runs(arguments):
        from cli.launcher.slurm import Job, script_of, submit

        folders = [f"--config-dir={folder}" for folder in split_config_dir(arguments)[0]]
        configs = [compose.compose_run(run) for run in runs]
        jobs = [Job("cli.main", ["train", *r, *folders], c) for r, c in zip(runs, configs, strict=True)]
        submit(script_of(jobs), configs[0].launch)
        return

    def check(config: "RunConfig") -> None:  # all runs of a sweep, before the first one starts
        check_wandb("log.wandb", config.log.wandb)
        check_root(config.data.source, config.data.root)
        _announce_torch()
        from clipx import objectives  # imports torch, so only after all settings were checked

        if not config.plugins:  # a plug-in may have terms of its own
            objectives.build(config.objective, 2**31).check_settings(config.model.teacher, config.temperature.bias)

    def launch(config: "RunConfig") -> None:
        check(config)
        from cli.train import train as start  # imports torch, so only after the settings were checked

        start(config)

    compose.run_command(launch, arguments, check)


def evaluate(arguments: list[str]) -> None:
    """clipx eval RUN... [tasks=[...]] [datasets=[...]] [jobs=N] [limit=N] [key=value ...]
    clipx eval model=open_clip:NAME/TAG_OR_FILE | model=hf-hub:USER/NAME datasets=[...] [tasks=[...]] [key=value ...]

    RUN is a run directory, a folder of runs or a checkpoint (RUN/checkpoints/STEP);
    checkpoint=RUN and checkpoint=[RUN,RUN] may be written instead. A run is evaluated at its last checkpoint, or at the
    best one if train.keep_best is set. With several runs, jobs=N evaluates N at a time.
    datasets= takes names of sets in sets=DIR (cifar10, mscoco, ...), LAYOUT:PATH (wds:DIR, captions:DIR, csv:FILE,
    hf:FOLDER_OR_NAME, ...), or held_out: the pairs of data.held_out, for choosing settings. clipx ls data lists all.
    The default is data.evaluation of the run's config.
    suite=datacomp38|vtab|clip13|composition adds those sets of the suite that are in sets=DIR.
    limit=N evaluates only N images of each set, for a quick look. Reports leave these results out.
    ema=true evaluates the averaged weights of train.ema and writes to RUN/ema/.
    interpolate=[0,0.25,0.5,0.75,1] evaluates the weights between the start weights of RUN (0) and its own (1); rows go
    to RUN/interpolated/0/, RUN/interpolated/0.25/, ...
    prompts=ensemble|simple|"... {c} ...", protocol=corrected|paper|centred and pools=[1000] choose how to evaluate; the
    results record them. Results are written to RUN/results.jsonl; those of a checkpoint that is not the run's last (or
    best) one go to RUN/intermediate/STEP/, those of model= to runs/MODEL/. out=DIR sets another folder. Finished
    evaluations are skipped unless force=true.
    clipx ls settings eval lists all settings.
    """
    from cli.settings.compose import compose_evals
    from clipx.run.log_writers import check_wandb

    config, runs = compose_evals(arguments)
    check_wandb("wandb", config.wandb)
    _announce_torch()
    from cli.eval.many import evaluate as start  # imports torch, so only after the settings were checked

    start(config, runs)


def check(arguments: list[str]) -> None:
    """clipx check recipe=NAME [key=value ...]
    clipx check recipe=NAME device=H100 [processes=64] [key=value ...]

    Estimates the memory of a step, builds the run, does a trial step on generated pairs and decodes some samples.
    Prints parameters, memory, time and missing data.
    device=A100-40|A100|H100|H200|L40S|RTX4090 processes=N: calculates the memory of each GPU and the time of a step on
    N such GPUs, which this machine need not have; N is train.processes x launch.nodes by default. Exit code 2 if a step
    does not fit; the message names settings with which it fits.
    """
    from cli.settings.compose import compose_run
    from clipx.config.presets import check_batch_size

    options, settings = take_options(arguments, CheckOptions, "check")
    if options.processes and not options.device:
        raise UserError(f"processes={options.processes} needs device=NAME; without it, set train.processes=N")
    config = compose_run(settings)  # before torch is imported
    if options.device:
        processes = options.processes or config.train.processes * config.launch.nodes
        check_batch_size(config, processes)
        _announce_torch()
        from cli.check import print_forecast

        print_forecast(config, processes, options.device)
        return
    from cli.check import check as start

    start(config)


COMMANDS: dict[str, Callable[[list[str]], None] | str] = {  # name -> function, or the module and function to import
    "train": train,
    "eval": evaluate,
    "report": "cli.report.command:report",
    "reproduce": "cli.reproduce.command:reproduce",
    "tune": "cli.tune:tune",
    "watch": "cli.watch:watch",
    "ls": "cli.ls:ls",
    "check": check,
    "export": "cli.export.command:export",
    "theory": "cli.theory:theory",
    "bench": "cli.bench:bench",
    "data": "cli.data:data",
    "completion": "cli.completion:script",
}
COMPOSED = ("train", "eval", "reproduce", "tune", "check", "bench")  # take settings of a run, so also plugins=


def main() -> None:
    """Run the console script `clipx`."""
    # Waiting OpenMP threads must sleep: if they spin, they take the cores from the loader's workers. With as many
    # workers as cores, a step took up to ten times as long. torch reads this variable when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.argv[1:2] == ["--complete"]:
        from cli.completion import answer

        answer(sys.argv[2:], COMMANDS)
        return
    sys.argv[1:] = map(with_home, sys.argv[1:])  # in sys.argv, because cli.settings.recipes reads --config-dir there
    name, *arguments = sys.argv[1:] or ["--help"]
    with ends_on_ctrl_c():
        code = exit_code_of(lambda: _run(name, arguments))
    if code:
        sys.exit(code)


def _run(name: str, arguments: list[str]) -> None:
    if name in ("-h", "--help", "help"):
        print(HELP, end="")
        return
    if name == "--version":
        from importlib.metadata import version

        print(f"clipx {version('clipx')}")
        return
    command = lookup(COMMANDS, name, "clipx")
    if {"-h", "--help"} & set(arguments):
        print(help_of(name))
        return
    load_plugins(permit_plugins(arguments))
    if name not in COMPOSED:
        arguments = [a for a in arguments if not a.startswith("plugins=")]
    if isinstance(command, str):
        command = resolve_name(command)
    # for `train`, Hydra parses --config-dir; for other commands, cli.settings.recipes reads it from sys.argv
    command(arguments if name == "train" else split_config_dir(arguments)[1])


def help_of(name: str) -> str:
    """Return the help of a command: the docstring of its function here, or of its module, which is not imported."""
    command = COMMANDS[name]
    if not isinstance(command, str):
        return inspect.getdoc(command) or ""
    file = Path(__file__).parents[1].joinpath(*command.partition(":")[0].split(".")).with_suffix(".py")
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def _announce_torch() -> None:
    """Print on a terminal that torch is being loaded, which takes some seconds."""
    if "torch" not in sys.modules and sys.stderr.isatty():
        print("loading torch and open_clip ...", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
