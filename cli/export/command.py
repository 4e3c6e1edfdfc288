"""`clipx export`: write a run's weights and model configuration for open_clip, or push them to the hub."""

import json
import sys
from pathlib import Path

import open_clip
import torch
from safetensors.torch import save_file

from cli.export import hub
from cli.export.weights import OpenClipModel, convert
from cli.settings.arguments import flag, split
from clipx.errors import UserError
from clipx.run.checkpoint import run_of
from clipx.run.checkpoint_manager import best_or_last
from clipx.utils.files import new_file, write_text

NEEDS = "RUN_OR_CHECKPOINT or soup=[RUN,...], and out=FILE.safetensors, out=FILE.pt, or hub=USER/NAME licence=LICENCE"
KNOWN = {"soup": "", "out": "", "ema": "false", "hub": "", "licence": "", "private": "false"}


def export(arguments: list[str]) -> None:
    """Run `clipx export`; print the files written, or the page on the hub, and how to load them."""
    soup = [a.removeprefix("soup=").strip("[]") for a in arguments if a.startswith("soup=")]
    if any(not name.strip() for names in soup for name in names.split(",")):
        raise UserError(f"soup=[{','.join(soup)}] lacks a run; allowed: soup=[RUN,RUN,...]")
    (source,), given = split([*arguments, *soup], KNOWN, "export", NEEDS)
    out, averaged = Path(given["out"]), flag(given["ema"], "ema")
    if bool(given["out"]) == bool(given["hub"]):
        raise UserError(f"`clipx export` needs {NEEDS}")
    if given["out"] and out.suffix not in (".safetensors", ".pt"):
        raise UserError(f"out={out} is out of range; allowed: FILE.safetensors, FILE.pt")
    target = hub.target(given["hub"], given["licence"], flag(given["private"], "private")) if given["hub"] else None
    if target is None and (given["licence"] or flag(given["private"], "private")):
        raise UserError("licence= and private= need hub=USER/NAME")
    runs = [name.strip() for name in source.split(",")] if soup else [source]
    chosen = [best_or_last(Path(run), "soup" if soup else "checkpoint") for run in runs]  # as clipx eval
    for checkpoint, reason in chosen:
        if reason:
            print(f"exporting {checkpoint}, {reason}; to export another checkpoint, give its folder", file=sys.stderr)
    found = [checkpoint for checkpoint, _ in chosen]
    title = out.stem if target is None else target.repository.replace("/", "--")
    model = convert(found, averaged, title, own_preprocessing=target is not None)
    if target is None:
        _write(model, out)
    else:
        hub.push(target, model, run_of(found[0]), averaged)


def _write(model: OpenClipModel, out: Path) -> None:
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
