"""Models as the evaluation sees them: a run's checkpoint, or any open_clip model."""

import hashlib
import re
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipx import runs, state
from clipx.data import tokenizer
from clipx.data.transforms import evaluation_transform
from clipx.models import clip
from clipx.models import open_clip_towers as towers
from clipx.types import Inputs
from evaluation.types import Encoder


def from_checkpoint(path: Path, device: torch.device) -> tuple[Encoder, Path]:
    """The model of a run directory or checkpoint folder, and its run directory.

    Raises:
        UserError: no checkpoint there, or a damaged one.
    """
    checkpoint = state.resolve(path)
    run = checkpoint.parent.parent
    config = runs.load_config(run)
    manifest = state.verify(checkpoint)
    model = clip.build(config, pretrained=False)
    state.load_weights(model, checkpoint)
    name = f"{config.name}/s{config.seed} step {manifest['step']}"
    digest = manifest["sha256"][state.WEIGHTS]
    return _encoder(name, model, model.inputs, model.encode_image, model.encode_text, digest, config.seed, device), run


def from_open_clip(name: str, device: torch.device) -> Encoder:
    """`open_clip:NAME` with random weights (seed 0), `open_clip:NAME/TAG` or `open_clip:NAME/FILE`.

    Raises:
        UserError: unknown name, or weights that are not there; says how to get them.
    """
    known = next(
        (n for n in sorted(towers.names(), key=len, reverse=True) if name == n or name.startswith(n + "/")),
        "",
    )
    weights = name[len(known) + 1 :] or None
    model_name = towers.parse(known or name.partition("/")[0], "model")
    torch.manual_seed(0)
    model: Any = towers.create(model_name, weights, "model", custom_text=False)
    title = name if weights else f"{name} (random weights)"

    def image(pixels: Tensor) -> Tensor:
        return F.normalize(model.encode_image(pixels), dim=-1)

    def text(tokens: Tensor) -> Tensor:
        return F.normalize(model.encode_text(tokens), dim=-1)

    digest = _digest_of_weights(model)
    return _encoder(title, model, towers.inputs_of(model, model_name, weights), image, text, digest, 0, device)


def folder_name(model: str) -> str:
    """Where results of a published model go: a folder name."""
    return re.sub(r"[^\w.-]+", "_", model)


def _encoder(
    name: str,
    model: nn.Module,
    inputs: Inputs,
    image: Any,
    text: Any,
    digest: str,
    seed: int,
    device: torch.device,
) -> Encoder:
    model.to(device).to(memory_format=torch.channels_last).eval()

    @torch.inference_mode()
    def encode_image(pixels: Tensor) -> Tensor:
        features: Tensor = image(pixels.to(device)).float().cpu()
        return features

    @torch.inference_mode()
    def encode_text(tokens: Tensor) -> Tensor:
        features: Tensor = text(tokens.to(device)).float().cpu()
        return features

    transform = evaluation_transform(inputs)
    return Encoder(
        name=name,
        preprocess=transform,
        tokenize=tokenizer.build(inputs),
        image=encode_image,
        text=encode_text,
        provenance={
            "checkpoint": digest[:16],
            "architecture": _hash(repr(model)),  # equal weights with another activation are another model
            "transform": _hash(repr(transform)),
            "tokenizer": _hash(f"{inputs.tokenizer} {inputs.context_length} {inputs.clean}"),
            "precision": f"fp32 {device.type}",
        },
        seed=seed,
    )


def _digest_of_weights(model: nn.Module) -> str:
    sha = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha.update(name.encode())
        sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
