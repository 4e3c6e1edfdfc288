"""`clipx export`: write a run's weights and model configuration for open_clip, or push them to the Hugging Face hub.

A model that open_clip cannot hold (other towers, heads) becomes one file of safetensors, which clipx loads.

open_clip's own `push_to_hf_hub` would also push a tokenizer, which it first fetches from the hub, and a second copy of
the weights; and it keeps the model card of an earlier push.
"""

import json
import re
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]
from huggingface_hub.utils.tqdm import disable_progress_bars

from cli.settings.arguments import parse_options
from clipx.config.schema import RunConfig
from clipx.config.setting import Rule, setting
from clipx.errors import Fault, UserError, printable_line
from clipx.run.checkpoint import run_of
from clipx.run.folder import RESULTS, RunFolder
from clipx.utils.files import new_file, write_text
from clipx.utils.hub import reachable
from clipx.utils.terminal import duration
from evaluation.runs import reader, results
from evaluation.runs.description import describe, digits, objective, training_seconds, unfinished

if TYPE_CHECKING:  # slow imports, here and in the functions: a wrong argument is found before them
    from cli.export.weights import OpenClipModel

NEEDS = "RUN_OR_CHECKPOINT or soup=[RUN,...], and out=FILE.safetensors, out=FILE.pt, or hub=USER/NAME licence=LICENCE"
RUNS: Rule = (lambda runs: bool(runs) and all(runs), "[RUN,RUN,...]")
FILE: Rule = (lambda name: Path(name).suffix in (".safetensors", ".pt"), "FILE.safetensors, FILE.pt")
LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")  # an identifier of the hub; the hub checks it against its list
SIGLIP = "siglip"
DIGEST = 16  # characters of a checkpoint's hash in result rows
REASON = 200  # largest number of characters of the hub's answer in a message


@dataclass(kw_only=True)
class Options:
    """The options of `clipx export`."""

    soup: list[str] = setting([], "runs whose mean weights are exported", RUNS)
    out: str | None = setting(None, "file of the weights", FILE)
    ema: bool = setting(False, "export the averaged weights of train.ema")
    hub: str | None = setting(None, "USER/NAME of a repository on the hub")
    licence: str = setting("", "its licence, an identifier of the hub")
    private: bool = setting(False, "whether a new repository is private")


def export(arguments: list[str]) -> None:
    """Run `clipx export`; print the files written, or the page on the hub, and how to load them."""
    runs, options = parse_options(arguments, Options, "export")
    if len(runs) + bool(options.soup) != 1 or bool(options.out) == bool(options.hub):
        raise UserError(f"`clipx export` needs {NEEDS}")
    token = _check_target(options.hub, options) if options.hub else ""
    if not options.hub and (options.licence or options.private):
        raise UserError("licence= and private= need hub=USER/NAME")
    key = "soup" if options.soup else "checkpoint"
    chosen = [RunFolder(Path(run)).best_or_last(key) for run in options.soup or runs]  # as clipx eval
    for checkpoint, reason in chosen:
        if reason:
            print(f"exporting {checkpoint}, {reason}; to export another checkpoint, give its folder", file=sys.stderr)
        if progress := unfinished(reader.read(run_of(checkpoint))):
            print(f"exporting {checkpoint} of a run that is not finished: {progress}", file=sys.stderr)
    found = [checkpoint for checkpoint, _ in chosen]
    title = Path(options.out).stem if options.out else str(options.hub).replace("/", "--")
    from cli.export.weights import convert, fits_open_clip

    whole = [place for place in found if not fits_open_clip(RunFolder.of_checkpoint(place).load_config())]
    if whole and options.out and options.out.endswith(".safetensors") and len(found) == 1:
        _write_whole(found[0], options.ema, Path(options.out))
        return
    if options.out and SIGLIP in title.lower():
        raise UserError(f"out={options.out}: open_clip gives every model with {SIGLIP} in its name SigLIP's tokenizer")
    model = convert(found, options.ema, title, own_preprocessing=bool(options.hub))
    if options.out:
        _write(model, Path(options.out))
    elif options.hub:
        card = _write_card(options.hub, options.licence.lower(), model, run_of(found[0]), options.ema)
        _push(options.hub, options, token, model, card)


def _write(model: "OpenClipModel", out: Path) -> None:
    import open_clip
    import torch
    from safetensors.torch import save_file

    config_file = out.with_suffix(".json")
    write_text(config_file, json.dumps(model.model_config, indent=4) + "\n")
    with new_file(out) as temporary:  # a program may have mapped the old file into its memory
        if out.suffix == ".pt":
            torch.save(model.weights, temporary)
        else:
            save_file(model.weights, temporary)
    print(f"{out}\n{config_file}\nimport open_clip")
    if model.module:
        print(f"import {model.module}  # defines its image tower")
    weights = f"pretrained={str(out)!r}).eval()"
    # open_clip's own file must exist: in this process get_model_config also finds configurations of clipx and plug-ins
    built_in = Path(open_clip.__file__).parent / "model_configs" / f"{model.name}.json"
    if built_in.is_file() and open_clip.get_model_config(model.name) == model.model_config:
        print(f"open_clip.create_model({model.name!r}, {weights}  # or, with the written configuration:")
    print(f"open_clip.add_model_config({str(config_file)!r})  # once, then:")
    print(f"open_clip.create_model({config_file.stem!r}, {weights}")
    print(f"open_clip.get_tokenizer({config_file.stem!r})")


def _write_whole(place: Path, averaged: bool, out: Path) -> None:
    """Write a model that open_clip cannot hold: towers with their heads, and in the metadata the settings."""
    from safetensors.torch import save_file

    from cli.export.weights import whole_model

    weights, config = whole_model(place, averaged)
    with new_file(out) as temporary:
        save_file(weights, temporary, {"clipx": json.dumps(asdict(config))})
    print(f"{out}\nfrom evaluation.embedding.encoder import from_file\nencoder = from_file({str(out)!r})")


def _check_target(repository: str, options: Options) -> str:
    """Check the options of a push before a model is built; return the token.

    Raises UserError: not USER/NAME, no licence, no token, or the hub cannot be reached.
    """
    from clipx.models.towers.hub_weights import REPOSITORY

    if not REPOSITORY.fullmatch(repository):
        raise UserError(f"hub={repository} must be USER/NAME")
    if not LICENCE.fullmatch(options.licence.lower()):
        given = f"licence={options.licence} is no identifier" if options.licence else "licence= is missing"
        raise UserError(f"hub={repository}: {given}; give one of the hub's, such as licence=apache-2.0, mit or other")
    if not (token := get_token()):
        raise UserError(f"hub={repository} needs a token that may write: run `hf auth login` or set HF_TOKEN")
    if not reachable():
        raise UserError(f"hub={repository}: {constants.ENDPOINT} cannot be reached; out=FILE.safetensors needs no hub")
    return token


def _push(repository: str, options: Options, token: str, model: "OpenClipModel", card: str) -> None:
    """Create the repository if it is missing, write three files in one commit, and print how to load the model.

    The files are the weights, open_clip_config.json and the model card README.md. Other files stay as they are.

    Raises UserError: the hub refuses the token, repository or licence. Raises Fault: the upload fails otherwise.
    """
    from open_clip.constants import HF_CONFIG_NAME, HF_SAFE_WEIGHTS_NAME
    from safetensors.torch import save_file

    from clipx.models.towers.hub_weights import PREFIX

    config = {"model_cfg": model.model_config, "preprocess_cfg": model.preprocess_config}
    if not sys.stderr.isatty():
        disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / HF_SAFE_WEIGHTS_NAME
        save_file(model.weights, weights)
        contents = {
            HF_SAFE_WEIGHTS_NAME: weights,
            HF_CONFIG_NAME: json.dumps(config, indent=4).encode(),
            "README.md": card.encode(),
        }
        files = [CommitOperationAdd(name, content) for name, content in contents.items()]
        api = HfApi(token=token, library_name="clipx")
        try:
            _check_card(card)  # before a repository is created
            page = api.create_repo(repository, private=options.private, exist_ok=True)
            api.create_commit(repository, files, commit_message=f"clipx export, step {model.step}")
        except Exception as error:  # the hub's client raises many types
            _refuse(f"hub={repository}", options.licence.lower(), error)
    name = f"{PREFIX}{repository}"
    print(page)
    if model.module:
        print(f"import {model.module}  # defines its image tower")
    print(f"open_clip.create_model_from_pretrained({name!r})", f"clipx eval model={name} datasets=[wds:DIR]", sep="\n")


def _check_card(card: str) -> None:
    """Raise ValueError if the hub refuses the card's metadata."""
    given = {"repoType": "model", "content": card}
    answer = get_session().post(f"{constants.ENDPOINT}/api/validate-yaml", json=given, headers={"Accept": "text/plain"})
    if answer.status_code == 400:
        raise ValueError(answer.text)


def _refuse(place: str, licence: str, error: Exception) -> NoReturn:
    """Raise UserError for what the user can change, else Fault; `place` is hub=USER/NAME."""
    status = error.response.status_code if isinstance(error, HfHubHTTPError) and error.response is not None else 0
    if status == 401:
        raise UserError(f"{place}: the hub does not accept the token; run `hf auth login` or set HF_TOKEN") from error
    if status == 403:
        raise UserError(
            f"{place}: the token may not write there; give your user name or organisation, and a write token"
        ) from error
    answer = error.server_message if isinstance(error, HfHubHTTPError) else None
    reason = " ".join((answer or str(error) or type(error).__name__).split())[:REASON]
    if status == 400 or isinstance(error, ValueError):
        raise UserError(
            f"{place} licence={licence}: the hub refuses the repository's name or the licence ({reason})"
        ) from error
    raise Fault(f"{place}: the upload failed ({reason}); run the command again") from error


def _write_card(repository: str, licence: str, model: "OpenClipModel", run: Path, averaged: bool) -> str:
    """Return README.md of the repository. It contains no path of this machine and only results of these weights.

    `averaged`: the exported weights are the averaged weights of train.ema, whose results are in RUN/ema.

    Raises UserError: a file of the run is corrupt.
    """
    rows = results.read((run / "ema" if averaged else run) / RESULTS)
    complete = [row for row in rows if results.LIMIT not in row.hashes]
    own = [row for row in complete if row.hashes.get("checkpoint") == model.digest[:DIGEST]]
    parts = [
        f"---\nlicense: {licence}\nlibrary_name: open_clip\npipeline_tag: zero-shot-image-classification\n"
        "tags:\n- clip\n- clipx\n---",
        f"# {repository.partition('/')[2]}",
        f"A contrastive image-text model with the towers of `{model.name}`, trained with clipx and exported for "
        f"open_clip. Images have {model.inputs.image_size} px, texts {model.inputs.context_length} tokens.",
    ]
    note = "Intervals are over the examples of each set, not over seeds."
    table = f"{results.markdown(own)}\n{note}" if own else "These weights have not been evaluated."
    parts += ["## Training", _training(model, run, averaged), "## Results", table]
    parts += ["## Use", _use(repository, model)]
    return "\n\n".join(parts) + "\n"


def _training(model: "OpenClipModel", run: Path, averaged: bool) -> str:
    config, read = RunFolder(run).load_config(), reader.read(run)
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
    named = []
    for side, weights in sides.items():
        if weights:  # a local file or folder, a published tag, or a name on the hub
            path = Path(weights)
            named.append(f"{side} {path.name if path.exists() or path.is_absolute() else weights}")
    return ", ".join(named) or "random"


def _commit(run: reader.Run) -> str:
    commit = str(run.environment.get("git_commit") or "")[:10]
    return f"{commit}{' with local changes' if run.environment.get('git_changes') else ''}" if commit else ""


def _cell(text: str) -> str:
    return printable_line(text).replace("|", "\\|")


def _use(repository: str, model: "OpenClipModel") -> str:
    imported = f"import {model.module}  # of clipx: defines the image tower\n" if model.module else ""
    name = f"hf-hub:{repository}"
    return (
        f"```python\nimport open_clip\n{imported}\nmodel, preprocess = open_clip.create_model_from_pretrained({name!r})"
        f"\nmodel.eval()\ntokenize = open_clip.get_tokenizer({name!r})\n```\n\n```\n"
        f"clipx eval model={name} datasets=[wds:DIR]\n"
        f"clipx train recipe=RECIPE model.image.name=open_clip:{model.name} model.image.pretrained={name}\n```"
    )
