"""Encoders for evaluation: the model of a run's checkpoint, or any open_clip model."""

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from clipx.config.schema import RunConfig
from clipx.config.setting import check, from_values
from clipx.data.preprocess import tokenizer
from clipx.data.preprocess.transforms import evaluation_transform
from clipx.errors import UserError, one_line, prefixed
from clipx.models import clip
from clipx.models.frozen import weights_digest
from clipx.models.heads import SinglePointHead
from clipx.models.towers import lora, open_clip_towers
from clipx.run import checkpoint as checkpoints
from clipx.run.folder import RunFolder
from clipx.run.initial_weights import KEY, build_initial_model, weights_source
from clipx.types import Inputs
from clipx.utils.device import PRECISIONS, autocast
from clipx.utils.registry import one_of
from clipx.utils.trust import load_json
from evaluation.embedding import wpse
from evaluation.types import Encoder

CPU = torch.device("cpu")
INTERPOLATE = "interpolate="  # the option, in messages
Encode = Callable[[Tensor], Tensor]


def from_checkpoint(
    path: Path,
    device: torch.device,
    precision: str = "fp32",
    averaged: bool = False,
    features_eval: int | None = None,
    alpha: float | None = None,
) -> tuple[Encoder, Path]:
    """Return the encoder of a checkpoint folder (or of the last one in a run directory), and the run directory.

    Args:
        averaged: use the averaged weights of train.ema.
        features_eval: number of random features, instead of the run's.
        alpha: use (1 - alpha) start weights + alpha weights of the checkpoint.

    Raises UserError: no checkpoint, a corrupt one, one without averaged weights or start weights, or an unknown
    precision.
    """
    checkpoint = checkpoints.resolve(path)
    run = checkpoints.run_of(checkpoint)
    config = lora.without(RunFolder(run).load_config())
    config.model.points.features_eval = features_eval or config.model.points.features_eval
    weights = checkpoints.chosen_weights(checkpoint, averaged)
    manifest = checkpoints.verify(checkpoint, weights)
    model = clip.build_model(config, pretrained=False)
    checkpoints.load_weights(model, checkpoint, weights)
    name = f"{config.name}/s{config.seed} step {manifest['step']}{' ema' if averaged else ''}"
    digest = manifest["sha256"][weights]
    if alpha is not None:
        name += f", alpha {alpha:g}"
        digest = interpolate(model, config, run, digest, alpha) or weights_digest(model)
    return _with_draws(model, name, digest, config, device, precision), run


def _with_draws(
    model: clip.ClipModel, name: str, digest: str, config: RunConfig, device: torch.device, precision: str
) -> Encoder:
    """Return the encoder with all draws of the head, and with features before the projection if the config has them."""
    model.to(device).to(memory_format=torch.channels_last).eval()
    encoder = of_model(model, name, digest, config.seed, device, precision)
    # The towers' last outputs are cached, so that all draws of the head share one forward pass per batch.
    image, text = (lru_cache(maxsize=1)(partial(tower)) for tower in (model.image, model.text))
    for draw in range(model.head.draws if model.head.draws > 1 else 0):
        head = model.head.evaluation(draw)
        encode = (_prepared(_compose(head, tower), device, precision) for tower in (image, text))
        if draw == 0:
            encoder.image, encoder.text = encode
        else:
            encoder.image_variants[f"draw {draw}"], encoder.text_variants[f"draw {draw}"] = encode
    if config.data.before_projection:
        encoder.image_variants["before projection"] = _prepared(model.penultimate_features, device, precision)
    return encoder


def of_model(model: clip.ClipModel, name: str, digest: str, seed: int, device: torch.device, precision: str) -> Encoder:
    """Return the encoder of a model in memory. The caller must put the model into evaluation mode.

    `digest`: hash of the weights, for cached embeddings and result rows; "" if neither is written.
    """
    encode = (model.encode_image, model.encode_text)
    encoder = _encoder(name, model, model.inputs, encode, digest, seed, device, precision)
    encoder.cosine = model.head.cosine
    encoder.provenance |= model.head.provenance()
    encoder.provenance |= {f"frozen {side}": digest for side, digest in model.tower_digests().items()}
    encoder.frozen_towers = model.frozen_towers
    return encoder


def from_file(file: str | Path, device: torch.device = CPU, precision: str = "fp32") -> Encoder:
    """Return the encoder of a file that `clipx export` wrote for a model that open_clip cannot hold.

    Raises UserError: not such a file, or a tower's configuration or tokenizer is not on this machine.
    """
    try:
        with safe_open(file, "pt") as opened:
            settings = load_json((opened.metadata() or {})["clipx"])
        weights = load_file(file)
        if not isinstance(settings, dict):
            raise ValueError("its settings are no object")
    except Exception as error:  # a missing file or entry, no JSON, or the error type of safetensors
        raise UserError(f"{file} is no model that `clipx export` wrote ({one_line(error)})") from error
    with prefixed(str(file)):
        config = from_values(RunConfig, settings)
        check(config)
    model = clip.build_model(config, pretrained=False)
    checkpoints.set_weights(model, weights, Path(file))
    model.to(device).to(memory_format=torch.channels_last).eval()
    return of_model(model, Path(file).stem, weights_digest(model), config.seed, device, precision)


def from_open_clip(name: str, device: torch.device, precision: str = "fp32") -> Encoder:
    """Return the encoder of `open_clip:NAME/TAG`, `.../FILE`, `.../random` (seed 0), or of `hf-hub:USER/NAME`.

    Raises UserError: unknown name or precision, or missing weights; the message says how to get them.
    """
    model: Any
    model, inputs = open_clip_towers.create_whole_model(name, "model")
    title = f"{name.removesuffix('/random')} (random weights)" if name.endswith("/random") else name

    unit_length = SinglePointHead("always").evaluation(draw=0)
    encode = (_compose(unit_length, model.encode_image), _compose(unit_length, model.encode_text))
    digest = weights_digest(model)
    model.to(device).to(memory_format=torch.channels_last).eval()
    return _encoder(title, model, inputs, encode, digest, 0, device, precision)


def from_wpse(name: str, device: torch.device, precision: str = "fp32", features_eval: int | None = None) -> Encoder:
    """Return the encoder of paper 5's weights, `wpse:FOLDER`; `features_eval` and errors as in `from_checkpoint`."""
    config = wpse.load_config(name)
    config.model.points.features_eval = features_eval or config.model.points.features_eval
    model = clip.build_model(config, pretrained=False)
    checkpoints.set_weights(model, wpse.load_weights(name), Path(name))
    return _with_draws(model, name, weights_digest(model), config, device, precision)


def interpolate(model: clip.ClipModel, config: RunConfig, run: Path, digest: str, alpha: float) -> str:
    """Set the model, which has the weights of a run, to (1 - alpha) start weights + alpha weights of the run.

    WiSE-FT (Wortsman et al. 2022, arXiv 2109.01903). All floating-point tensors are interpolated, including the running
    statistics of batch norms, which are not measured again for the new weights. Integer buffers, such as counts of
    batches, are those of the run.

    Returns the SHA-256 of the file with these weights: `digest` at alpha = 1, that of model.init at alpha = 0, else "".

    Raises UserError like `check_start_weights`, or if the start weights cannot be loaded.
    """
    check_start_weights(config, run)
    start, end = build_initial_model(config).state_dict(), model.state_dict()
    mixed = {key: torch.lerp(start[key], w, alpha) if w.is_floating_point() else w for key, w in end.items()}
    model.load_state_dict(mixed)
    source = weights_source(config, "init").get("init", {})
    return {0.0: str(source.get("sha256", "")), 1.0: digest}.get(alpha, "")


def check_start_weights(config: RunConfig, run: Path) -> None:
    """Raise UserError if a run did not start from weights on disk, or if those of model.init have changed since."""
    if config.model.init is not None:
        now = weights_source(config, "init")["init"]
        then = RunFolder(run).environment.get("init", now)
        if now["sha256"] != then["sha256"]:
            raise UserError(
                f"{INTERPOLATE} needs the start weights of {run}, {then['checkpoint']}; {KEY}={config.model.init} now "
                f"gives others, {now['checkpoint']}"
            )
        return
    towers = (config.model.image, config.model.text)
    published = all(tower.pretrained and tower.name.startswith("open_clip:") for tower in towers)
    if not published or config.model.points.kernel != "none":
        needed = f"{KEY}, or model.*.pretrained of two open_clip: towers without point sets"
        raise UserError(f"{INTERPOLATE} needs start weights on disk ({needed}), but {run} started from random ones")


def folder_name(model: str) -> str:
    """Return the name of the folder for the results of a published model."""
    return re.sub(r"[^\w.-]+", "_", model)


def _encoder(
    name: str,
    model: nn.Module,
    inputs: Inputs,
    encode: tuple[Encode, Encode],
    digest: str,
    seed: int,
    device: torch.device,
    precision: str,
) -> Encoder:
    image, text = (_prepared(encode_one, device, precision) for encode_one in encode)
    transform = evaluation_transform(inputs)
    return Encoder(
        name=name,
        preprocess=transform,
        tokenize=tokenizer.build_tokenizer(inputs),
        image=image,
        text=text,
        provenance={
            "checkpoint": digest[:16],
            "architecture": _hash(repr(model)),  # the hash of the weights lacks the activation function
            "transform": _hash(repr(transform)),
            "tokenizer": _hash(f"{inputs.tokenizer} {inputs.context_length} {inputs.clean}"),
            "precision": f"{precision} {device.type}",
        },
        seed=seed,
    )


def _prepared(encode: Encode, device: torch.device, precision: str) -> Encode:
    """Wrap `encode`: no gradients, towers on `device` in `precision`, float32 output on the CPU."""
    one_of(precision, PRECISIONS, "precision")

    @torch.no_grad()  # not inference_mode: training may use tensors that a tower caches during the call
    def prepared(batch: Tensor) -> Tensor:
        with autocast(precision, device):
            return encode(batch.to(device)).float().cpu()

    return prepared


def _compose(head: Callable[[Any], Tensor], tower: Callable[[Tensor], Any]) -> Encode:
    return lambda batch: head(tower(batch))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
