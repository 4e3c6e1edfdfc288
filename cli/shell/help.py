"""Text of `clipx --help`, and the main settings that `clipx train --help` lists."""

HELP = """\
clipx: train, evaluate and compare contrastive image-text objectives

  clipx train recipe=NAME [key=value ...]    train or resume a run; -m sweeps, --cfg job prints the config
  clipx eval RUN... [datasets=[..]]          evaluate runs, or model=open_clip:NAME/TAG, model=hf-hub:USER/NAME
  clipx report RUN_OR_DIR...                 tables and figures as Markdown, HTML and CSV; out=DIR
  clipx report claims RUN_OR_DIR...          verdicts on the papers' claims, with effects and intervals
  clipx report power RUN_OR_DIR...           seeds and hours that undecided claims need
  clipx report compare RUN_OR_DIR...         methods under the same conditions, ranked, with paired intervals
  clipx report diff RUN RUN                  two models item by item: tests, and pictures on which they disagree
  clipx report published SET|MODEL           open_clip's published results
  clipx report scaling RUN_OR_DIR...         effect as a function of scale: laws, crossovers, a prediction
  clipx report regimes RUN_OR_DIR...         training regimes beside those of the papers
  clipx report missing-objects FOLDER        claim 1.12 on COCO's annotations
  clipx reproduce recipe=NAME                train, evaluate and report all arms and seeds of a recipe
  clipx check recipe=NAME [key=value ...]    build the run and do a trial step: parameters, memory, missing data
  clipx export RUN out=FILE.safetensors      weights and configuration for open_clip; hub=USER/NAME: to the hub
  clipx bench NAME                           time the steps of several arms: the papers' claims on cost
  clipx bench recipe=NAME [arms=a,b]         time the steps of a recipe's arms
  clipx theory [NAME] [key=value ...]        solve the papers' toy problems: claims, verdicts, figures
  clipx data index|verify|keywords FOLDER    index shards; check every sample; count captions per keyword
  clipx data make|pull NAME                  download training data with img2dataset; download evaluation sets
  clipx ls recipes|terms|towers|data|tasks|claims|theory   list what is available
  clipx ls settings [PREFIX]                 list settings: default, unit, range, meaning

  clipx init term|task|recipe NAME           write an example and its test into this folder
  clipx cp RECIPE FILE                       copy a recipe

  clipx COMMAND --help                       more about one command

  --config-dir DIR                           folder of your own recipes, for all commands with recipe=NAME
  plugins=[MODULE,...]                       your own terms, tasks, towers and sources, for all commands

  clipx completion bash|zsh|fish             print the script that completes commands, settings and names at TAB;
                                             in .bashrc or .zshrc: eval "$(clipx completion bash)"
  clipx --version                            print the version

Start with:  clipx train recipe=demo
"""

MAIN_SETTINGS = (
    *("recipe", "arm", "name", "seed", "data.root", "data.workers", "model.image.name", "model.text.name"),
    *("objective", "temperature.kind", "temperature.tau", "optimizer.lr", "schedule.warmup_steps"),
    *("train.samples", "train.epochs", "train.batch_size", "train.precision", "train.accumulation", "train.processes"),
    *("train.save_every", "log.evaluate_every", "log.wandb"),
)


def print_main_settings() -> None:
    """Print MAIN_SETTINGS with defaults and meanings."""
    from clipx.config.schema import RunConfig
    from clipx.config.setting import settings_of

    known = settings_of(RunConfig)
    print("\nMain settings with their defaults (a recipe may set other values):")
    for key in MAIN_SETTINGS:
        default = {"???": "", "None": "null", "{}": ""}.get(str(known[key].default), str(known[key].default))
        print(f"  {key:<22} {default:<8} {known[key].meaning}")
