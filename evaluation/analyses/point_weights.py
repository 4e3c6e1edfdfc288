"""The weights that a model of point sets gives to the patches of an image and to the words of a caption (paper 5)."""

import json
import math
from pathlib import Path
from typing import Any

import open_clip
import torch
from PIL.Image import Image

from clipx.config.schema import RunConfig
from clipx.data.preprocess import tokenizer
from clipx.data.preprocess.transforms import evaluation_transform
from clipx.data.sources.opening import root_folder
from clipx.models import clip
from clipx.run import checkpoint as state
from clipx.run import directory
from clipx.types import PointSet
from clipx.utils.files import write_text
from evaluation.datasets.opening import open_dataset

KIND = "captions"  # of the run's evaluation sets: the first one is shown
SHOWN = 4  # pairs
SIDE = 56  # pixels of a picture in the artifact


def evaluate(checkpoint: Path, out: Path) -> None:
    """Writes out/artifacts/weights-<data>.json; nothing for models of one point, or without captions of its own.

    Raises:
        UserError: no or a damaged checkpoint, or its evaluation data are not there.
    """
    folder = state.resolve(checkpoint)
    config = directory.load_config(folder.parent.parent)
    places = [entry.partition(":")[2] for entry in config.data.evaluation if entry.startswith(f"{KIND}:")]
    if config.model.points.kernel == "none" or not places:
        return
    model = clip.build_model(config, pretrained=False).eval()
    state.load_weights(model, folder)
    shown = _examples(config, model, places[0])
    write_text(out / "artifacts" / f"weights-{config.data.name}.json", json.dumps({"kind": "weights", "shown": shown}))


@torch.inference_mode()
def _examples(config: RunConfig, model: clip.ClipModel, place: str) -> list[dict[str, Any]]:
    data: Any = open_dataset(f"{KIND}:{root_folder(config.data) / place}")
    split = data.splits[0]
    images, captions = data.images(split), data.texts(split, "captions")
    transform, tokenize = evaluation_transform(model.inputs), tokenizer.build_tokenizer(model.inputs)
    first_of = {int(image): caption for caption, image in reversed(list(enumerate(data.image_of_caption(split))))}
    shown = []
    for number in sorted(first_of)[:SHOWN]:
        ids = tokenize([captions[first_of[number]]])
        image: PointSet = model.image(transform(images[number])[None])
        text: PointSet = model.text(ids)
        weights = image.weights[0].tolist()
        side = math.isqrt(len(weights))
        prefix = len(weights) - side**2  # the class token
        words = range(1, int(ids[0].argmax()))  # between the start and the end
        shown.append(
            {
                "pixels": _pixels(images[number]),
                "patches": [weights[prefix + row * side :][:side] for row in range(side)],
                "words": [[open_clip.decode(ids[0, at : at + 1]).strip(), float(text.weights[0, at])] for at in words],
            }
        )
    return shown


def _pixels(image: Image) -> list[list[list[int]]]:
    """[SIDE, SIDE, 3] in 0..255, the middle square as the model sees it."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    small = image.convert("RGB").crop((left, top, left + side, top + side)).resize((SIDE, SIDE))
    raw = small.tobytes()
    return [[list(raw[3 * (SIDE * y + x) :][:3]) for x in range(SIDE)] for y in range(SIDE)]
