"""Weights that a point-set model assigns to image patches and caption words (paper 5)."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import ImageOps
from PIL.Image import Image

from clipx.config.schema import RunConfig
from clipx.data.preprocess import tokenizer
from clipx.data.preprocess.transforms import evaluation_transform
from clipx.data.sources.opening import ensure_root_folder
from clipx.errors import UserError
from clipx.models import clip
from clipx.run import checkpoint as checkpoints
from clipx.run.folder import ARTIFACTS, RunFolder
from clipx.types import PointSet
from clipx.utils.files import write_text
from evaluation.datasets.opening import open_dataset

KIND = "captions"  # the run's first evaluation set of this kind is used
MAX_PAIRS = 4
SIDE = 56  # width and height of an image in the artifact, px


def evaluate(checkpoint: Path, out: Path) -> None:
    """Write out/artifacts/weights-DATA.json. Skip single-point models, and runs without an evaluation set of captions.

    Print a note if that set is missing or damaged. Raises UserError: the checkpoint is missing or corrupt.
    """
    folder = checkpoints.resolve(checkpoint)
    config = RunFolder.of_checkpoint(folder).load_config()
    datasets = [entry.partition(":")[2] for entry in config.data.evaluation if entry.startswith(f"{KIND}:")]
    if config.model.points.kernel == "none" or not datasets or config.data.features:  # stored tokens have no patches
        return
    model = clip.build_model(config, pretrained=False).eval()
    checkpoints.load_weights(model, folder)
    try:
        artifact = {"kind": "weights", "shown": _examples(config, model, datasets[0])}
    except UserError as error:
        print(f"point weights skipped, evaluation data missing or damaged: {error}", file=sys.stderr)
        return
    write_text(out / ARTIFACTS / f"weights-{config.data.name}.json", json.dumps(artifact))


@torch.inference_mode()
def _examples(config: RunConfig, model: clip.ClipModel, dataset: str) -> list[dict[str, Any]]:
    """Return pixels, patch weights and word weights of the first MAX_PAIRS images, each with its first caption."""
    data: Any = open_dataset(f"{KIND}:{ensure_root_folder(config.data) / dataset}")
    split = data.splits[0]
    images, captions = data.images(split), data.texts(split, "captions")
    transform, tokenize = evaluation_transform(model.inputs), tokenizer.build_tokenizer(model.inputs)
    first_caption = {int(image): caption for caption, image in reversed(list(enumerate(data.image_of_caption(split))))}
    examples = []
    for number in sorted(first_caption)[:MAX_PAIRS]:
        ids = tokenize([captions[first_caption[number]]])
        image: PointSet = model.image(transform(images[number])[None])
        text: PointSet = model.text(ids)
        weights = image.weights[0].tolist()
        side = math.isqrt(len(weights))
        prefix = len(weights) - side**2  # 1 if the model has a class token, else 0
        words = tokenizer.words(model.inputs, ids[0])
        examples.append({
            "pixels": _pixels(images[number]),
            "patches": [weights[prefix + row * side :][:side] for row in range(side)],
            "words": [[word, float(text.weights[0, position])] for position, word in words],
        })  # fmt: skip
    return examples


def _pixels(image: Image) -> list[list[list[int]]]:
    """Return the centre crop as [SIDE, SIDE, 3] in 0..255."""
    pixels: list[list[list[int]]] = np.asarray(ImageOps.fit(image.convert("RGB"), (SIDE, SIDE))).tolist()
    return pixels
