"""The model card of an exported run: how it was trained, its results with intervals, how to load it."""

from pathlib import Path

from cli.export.weights import OpenClipModel
from clipx.config.schema import RunConfig
from clipx.run import directory
from evaluation.runs import reader, results
from evaluation.runs.description import describe, digits, duration, objective, training_seconds
from evaluation.types import Result, printable_line

DIGEST = 16  # characters of a checkpoint's hash in result rows


def write_card(repository: str, licence: str, model: OpenClipModel, run: Path, averaged: bool) -> str:
    """Return README.md of the repository. It contains no path of this machine and only results of these weights.

    `averaged`: the exported weights are the averaged weights of train.ema, whose results are in RUN/ema.

    Raises UserError: a file of the run is corrupt.
    """
    rows = results.read((run / "ema" if averaged else run) / results.RESULTS)
    complete = [row for row in rows if results.LIMIT not in row.hashes]
    own = [row for row in complete if row.hashes.get("checkpoint") == model.digest[:DIGEST]]
    parts = [_head(licence), f"# {repository.partition('/')[2]}", _introduction(model)]
    parts += ["## Training", _training(model, run, averaged), "## Results", _results(own)]
    parts += ["## Use", _use(repository, model)]
    return "\n\n".join(parts) + "\n"


def _head(licence: str) -> str:
    return (
        f"---\nlicense: {licence}\nlibrary_name: open_clip\npipeline_tag: zero-shot-image-classification\n"
        "tags:\n- clip\n- clipx\n---"
    )


def _introduction(model: OpenClipModel) -> str:
    return (
        f"A contrastive image-text model with the towers of `{model.name}`, trained with clipx and exported for "
        f"open_clip. Images have {model.inputs.image_size} px, texts {model.inputs.context_length} tokens."
    )


def _training(model: OpenClipModel, run: Path, averaged: bool) -> str:
    config, read = directory.load_config(run), reader.read(run)
    described = describe(read)
    batch = config.train.batch_size
    mean = {"Weights": f"mean of {model.runs} runs; the other rows are about the first"} if model.runs > 1 else {}
    rows = {
        **mean,
        "Recipe": " ".join(filter(None, (config.recipe, config.arm and f"arm {config.arm}"))),
        "Data": f"{config.data.name} (source {config.data.source}, split {config.data.split})",
        "Objective": objective(read),
        "Temperature": f"{described['Temperature']}, τ = {digits(model.tau)} at the end",
        "Initial weights": _initial(config),
        "Batch size": f"{batch:,}",
        "Steps": f"{model.step:,}{', averaged weights of train.ema' if averaged else ''}",
        "Samples seen": f"{model.step * batch:,}",
        "Optimizer": f"learning rate {config.optimizer.lr:g}, weight decay {config.optimizer.weight_decay:g}",
        "Captions": "as they are" if model.inputs.clean == "none" else f"cleaned by `{model.inputs.clean}` of clipx",
        "Seed": str(config.seed),
        "Device": described["Device"],
        "Training time": duration(training_seconds(read)),
        "clipx": " ".join(filter(None, (read.environment.get("packages", {}).get("clipx"), _commit(read)))),
    }
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows.items())


def _initial(config: RunConfig) -> str:
    """Describe the weights before the first step; a local file only by its name."""
    if config.model.init:
        return f"of another run, {Path(config.model.init).name}"
    sides = {"image": config.model.image.pretrained, "text": config.model.text.pretrained}
    named = {side: weights for side, weights in sides.items() if weights}
    if not named:
        return "random"
    return ", ".join(f"{side} {Path(w).name if Path(w).exists() else w}" for side, w in named.items())


def _commit(run: reader.Run) -> str:
    commit = str(run.environment.get("git_commit") or "")[:10]
    return f"{commit}{' with local changes' if run.environment.get('git_changes') else ''}" if commit else ""


def _results(rows: list[Result]) -> str:
    if not rows:
        return "These weights have not been evaluated."
    lines = [
        "| task | data set | split | metric | value | 95% interval | chance | n |",
        "|---|---|---|---|--:|---|--:|--:|",
    ]
    for row in rows:
        chance = "" if row.chance is None else digits(row.chance)
        numbers = (digits(row.value), f"{digits(row.low)} .. {digits(row.high)}", chance, f"{row.n:,}")
        names = (row.task, row.dataset, row.split, row.metric)
        lines.append(f"| {' | '.join(_cell(text) for text in (*names, *numbers))} |")
    note = "Values are fractions, except geometry. Intervals are over the examples of each set, not over seeds."
    return "\n".join(lines) + f"\n\n{note}"


def _cell(text: str) -> str:
    return printable_line(text).replace("|", "\\|")


def _use(repository: str, model: OpenClipModel) -> str:
    imported = f"import {model.module}  # of clipx: defines the image tower\n" if model.module else ""
    name = f"hf-hub:{repository}"
    return (
        f"```python\nimport open_clip\n{imported}\nmodel, preprocess = open_clip.create_model_from_pretrained({name!r})"
        f"\nmodel.eval()\ntokenize = open_clip.get_tokenizer({name!r})\n```\n\n```\n"
        f"clipx eval model={name} datasets=[wds:DIR]\n"
        f"clipx train recipe=RECIPE model.image.name=open_clip:{model.name} model.image.pretrained={name}\n```"
    )
