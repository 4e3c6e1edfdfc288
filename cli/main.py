"""The `clipx` command: finds the subcommand, turns the user's mistakes into one line and exit code 2."""

import os
import sys
from collections.abc import Callable

from cli.exit_codes import exit_code_of
from clipx.config.schema import RunConfig
from clipx.utils.registry import lookup

HELP = """\
clipx: train, evaluate and compare contrastive image-text objectives

  clipx train recipe=NAME [key=value ...]    train, or resume; -m sweeps, --cfg job shows the settings
  clipx eval checkpoint=RUN [datasets=[..]]  evaluate a run, or model=open_clip:NAME/TAG
  clipx report RUN_OR_DIR...                 tables, figures: Markdown, HTML, CSV; out=DIR
  clipx reproduce recipe=NAME                every arm and seed of a recipe: train, evaluate, report
  clipx report claims RUN_OR_DIR...          the papers' claims with effects, intervals, verdicts
  clipx report compare RUN_OR_DIR...         methods under the same conditions, ranked, with paired intervals
  clipx export RUN out=FILE.safetensors      weights and configuration for open_clip
  clipx ls recipes|terms|towers|data|tasks|claims|theory   what is available
  clipx theory [NAME] [key=value ...]        the papers' toy problems, exact, with verdicts and figures
  clipx data index|verify|keywords FOLDER    index shards; read all samples once; count labels of captions
  clipx data make|pull NAME                  training data by img2dataset; evaluation sets
  clipx check recipe=NAME [key=value ...]    build the run, do a trial step: parameters, memory, missing data

  clipx COMMAND --help                       more about one command

  --config-dir DIR                           recipes of your own, with any command that takes recipe=NAME

  eval "$(clipx -sc install=bash)"           completes settings and names in bash (zsh, fish alike)

Start with:  clipx train recipe=demo
"""


def train(arguments: list[str]) -> None:
    """clipx train recipe=NAME [key=value ...] [-m] [--cfg job] [--config-dir DIR]

    Trains in runs/<name>/s<seed>/ and resumes there if called again. The run's name is the recipe and what
    was overridden; name=NAME sets it. arm=NAME runs one of the recipe's arms. Settings: clipx train recipe=NAME
    --cfg job; meanings: clipx/config/schema.py. Sweeps: -m key=a,b,c. Own recipes: YAML files in a folder given by
    --config-dir.
    """
    from cli.settings import compose

    def launch(config: RunConfig) -> None:
        from cli.train import train as start  # torch comes with it, after the settings were checked

        start(config)

    compose.run_command(launch, arguments)


def evaluate(arguments: list[str]) -> None:
    """clipx eval checkpoint=RUN_OR_STEP | model=open_clip:NAME[/TAG_OR_FILE] [tasks=[...]] [datasets=[...]]

    Data sets: names below root=DIR (cifar10, mscoco, ...), or a layout and a place (wds:DIR, captions:DIR,
    hf:REPOSITORY, ...), see `clipx ls data`; by default those of the run's config (data.evaluation).
    Of a run the last checkpoint is scored, with train.keep_best the best one.
    prompts=ensemble|simple|"... {c} ...", protocol=corrected|paper, pools=[1000] are choices that the rows record.
    Rows go to RUN/results.jsonl (out=DIR: elsewhere), a finished evaluation is not repeated (force=true). ema=true: the
    averaged weights of train.ema, rows to RUN/ema/. Also processes=, batch_size=, workers=, device=, precision=.
    """
    from cli.eval import evaluate as start
    from cli.settings.compose import compose_eval

    start(compose_eval(arguments))


def report(arguments: list[str]) -> None:
    """clipx report RUN_OR_DIR... [out=DIR]

    Writes report.md, report.html (self-contained) and report.csv, by default into the first folder.
    clipx report compare RUN_OR_DIR... [by=mean|zeroshot|linear_probe|retrieval|pairs] [out=DIR]: methods with the same
    towers, data, length and batch size, ranked by paired seeds, geometry beside; compare.md, .html, .csv.
    clipx report claims RUN_OR_DIR...: only the verdicts on the papers' claims, in the terminal.
    clipx report missing-objects FOLDER [out=DIR]: claim 1.12 on COCO's annotations.
    """
    from cli.report.command import report as start

    start(arguments)


def reproduce(arguments: list[str]) -> None:
    """clipx reproduce recipe=NAME[,NAME] [arms=a,b] [seeds=N] [jobs=N] [dry=true] [out=DIR] [key=value ...]

    Trains and evaluates every arm of a recipe with every seed, jobs=N at a time, and writes a report. Called
    again, it goes on where it was: finished runs are skipped. Recipes on several data sets take their folders by
    name: cc3m=DIR mscoco=DIR. dry=true lists the runs with their GPU-hours and disk, by calculation: chip=H100 (A100,
    H200, L40S, RTX4090) and share=0.35 of its peak.
    """
    from cli.reproduce.command import reproduce as start

    start(arguments)


def ls(arguments: list[str]) -> None:
    """clipx ls [recipes|terms|towers|data|tasks|claims|theory]

    One name per line, with a short description.
    """
    from cli.ls import ls as start

    start(arguments)


def theory(arguments: list[str]) -> None:
    """clipx theory [NAME | all] [key=value ...] [out=DIR]

    Solves a toy problem of the papers, prints measured and expected numbers and the verdict on its claims, and writes
    claims.json and figures into DIR (default runs/theory/NAME). Without a name: all of them. `objectives` tries
    every objective on free embeddings, without data and towers. Names: clipx ls theory.
    """
    from cli.theory import theory as start

    start(arguments)


def check(arguments: list[str]) -> None:
    """clipx check recipe=NAME [key=value ...]

    Builds the run and does a trial step on generated pairs: parameters, memory, seconds, and which data is missing.
    """
    from cli.check import check as start
    from cli.settings.compose import compose_run

    start(compose_run(arguments))


def export(arguments: list[str]) -> None:
    """clipx export RUN_OR_CHECKPOINT out=FILE.safetensors|FILE.pt [ema=true]

    Writes the weights as open_clip.create_model(..., pretrained=FILE) loads them, and FILE.json, the model's
    configuration for open_clip.add_model_config. ema=true takes the averaged weights of train.ema.
    """
    from cli.export import export as start

    start(arguments)


def data(arguments: list[str]) -> None:
    """clipx data index FOLDER | verify FOLDER | keywords FOLDER | make NAME | pull NAME

    index FOLDER: writes FOLDER/clipx_index, which training uses. Run it again after adding shards: samples that were
    there keep their ids.
    verify FOLDER [captions=first|random] [max_bad_rate=0.05] [workers=N] [out=DIR]: decodes every sample once;
    verify.json and verify.txt name the damaged ones; exit code 2 above the rate.
    keywords FOLDER [keywords=numbers,dog] [captions=first|random] [digits=true]: label counts of the captions.
    make cc3m|cc12m|datacomp_small urls=LIST root=DIR [size=PIXELS] [processes=N] [threads=64] [dry=true]: shards by
    img2dataset from the published list; dry=true prints its command line.
    pull NAME root=DIR: downloads an evaluation set to where `clipx eval` looks for it.
    """
    from cli.data.command import data as start

    start(arguments)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "eval": evaluate,
    "report": report,
    "reproduce": reproduce,
    "ls": ls,
    "check": check,
    "export": export,
    "theory": theory,
    "data": data,
}


def _without_recipe_folders(arguments: list[str]) -> list[str]:
    """Hydra knows --config-dir DIR; for the other commands cli.settings.compose reads it from the command line."""
    kept, skip = [], False
    for argument in arguments:
        switch = argument in ("--config-dir", "-cd")
        if not (skip or switch or argument.startswith("--config-dir=")):
            kept.append(argument)
        skip = switch
    return kept


def main() -> None:
    """Console script."""
    # OpenMP threads that spin while they wait take the cores from the loader's workers: with as many workers
    # as cores a step took up to ten times as long. Read when torch is loaded, so it stands before any import.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-sc", "--shell-completion"):
        from cli.settings.compose import complete

        complete(sys.argv[1:])
        return

    def run() -> None:
        if name in ("-h", "--help", "help"):
            print(HELP, end="")
            return
        command = lookup(COMMANDS, name, "clipx")
        if {"-h", "--help"} & set(arguments):
            print("\n".join(line.strip() for line in (command.__doc__ or "").splitlines()).rstrip())
        else:
            command(arguments if command is train else _without_recipe_folders(arguments))

    if code := exit_code_of(run):
        sys.exit(code)


if __name__ == "__main__":
    main()
