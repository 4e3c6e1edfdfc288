"""clipx export RUN_OR_CHECKPOINT out=FILE.safetensors|FILE.pt [ema=true]

Writes the weights for open_clip.create_model(..., pretrained=FILE), and FILE.json, the model configuration for
open_clip.add_model_config. ema=true exports the averaged weights of train.ema. A model that open_clip cannot hold
(heads, other towers) becomes FILE.safetensors, which evaluation.embedding.encoder.from_file loads.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.settings.arguments import parse_arguments
from clipx.config.setting import Rule, setting
from clipx.errors import UserError
from clipx.run.checkpoint import run_of, verify
from clipx.run.folder import RunFolder
from clipx.utils.files import new_file, write_text
from evaluation.runs import reader
from evaluation.runs.description import unfinished

if TYPE_CHECKING:  # slow imports, here and in the functions: a wrong argument is found before them
    from cli.export.weights import OpenClipModel

FILE: Rule = (lambda name: Path(name).suffix in (".safetensors", ".pt"), "FILE.safetensors, FILE.pt")
SIGLIP = "siglip"


@dataclass(kw_only=True)
class Options:
    """The options of `clipx export`."""

    out: str | None = setting(None, "file of the weights", FILE)
    ema: bool = setting(False, "export the averaged weights of train.ema")


def export(arguments: list[str]) -> None:
    """Run `clipx export`: write the weights, and print the names of the files and how to load them."""
    (run,), options = parse_arguments(arguments, Options, "export", "RUN_OR_CHECKPOINT")
    if options.out is None:
        raise UserError("`clipx export` needs RUN_OR_CHECKPOINT and out=FILE.safetensors or out=FILE.pt")
    out = Path(options.out)
    checkpoint, reason = RunFolder(Path(run)).best_or_last()  # as clipx eval
    if reason:
        print(f"exporting {checkpoint}, {reason}; to export another checkpoint, give its folder", file=sys.stderr)
    if progress := unfinished(reader.read(run_of(checkpoint))):
        print(f"exporting {checkpoint} of a run that is not finished: {progress}", file=sys.stderr)
    verify(checkpoint)
    from cli.export.weights import convert, fits_open_clip

    if out.suffix == ".safetensors" and not fits_open_clip(RunFolder.of_checkpoint(checkpoint).load_config()):
        _write_whole(checkpoint, options.ema, out)
        return
    if SIGLIP in out.stem.lower():
        raise UserError(f"out={out}: open_clip gives every model with {SIGLIP} in its name SigLIP's tokenizer")
    _write(convert(checkpoint, options.ema, out.stem), out)


def _write(model: "OpenClipModel", out: Path) -> None:
    import torch
    from safetensors.torch import save_file

    config_file = out.with_suffix(".json")
    write_text(config_file, json.dumps(model.model_config, indent=4) + "\n")
    with new_file(out) as temporary:  # a program may have mapped the old file into its memory
        if out.suffix == ".pt":
            torch.save(model.weights, temporary)
        else:
            save_file(model.weights, temporary)
    print(out, config_file, "import open_clip", sep="\n")
    if model.module:
        print(f"import {model.module}  # defines its image tower")
    print(f"open_clip.add_model_config({str(config_file)!r})  # once, then:")
    print(f"open_clip.create_model({config_file.stem!r}, pretrained={str(out)!r}).eval()")
    print(f"open_clip.get_tokenizer({config_file.stem!r})")


def _write_whole(place: Path, averaged: bool, out: Path) -> None:
    """Write a model that open_clip cannot hold: towers with their heads, and in the metadata the settings."""
    from safetensors.torch import save_file

    from cli.export.weights import whole_model

    weights, config = whole_model(place, averaged)
    with new_file(out) as temporary:
        save_file(weights, temporary, {"clipx": json.dumps(asdict(config))})
    print(f"{out}\nfrom evaluation.embedding.encoder import from_file\nencoder = from_file({str(out)!r})")
