"""Geometry during training: gap, uniformity, alignment and margins of fixed pairs, every log.geometry_every steps."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx import distributed, geometry
from clipx.config.schema import RunConfig
from clipx.data.loading.features import given_texts, image_features, text_features
from clipx.data.preprocess.images import BadSample, decode
from clipx.data.preprocess.tokenizer import Tokenizer
from clipx.data.preprocess.transforms import evaluation_transform
from clipx.data.sampler import split_held_out
from clipx.data.sources.base import PairSource
from clipx.data.sources.embeddings import EmbeddingPairs
from clipx.data.sources.streams import Stream
from clipx.errors import UserError
from clipx.models.clip import ClipModel
from clipx.types import Progress
from clipx.utils.device import autocast

MARGIN_BATCH = 64  # paper 1 computes margins within batches of 64
Paused = Callable[[], AbstractContextManager[None]]  # context whose time does not count as training


class GeometryProbe:
    """Fixed pairs, read once, and their geometry under the model.

    Images are as in evaluation; with data.views, the first view.
    """

    def __init__(self, config: RunConfig, pairs: PairSource | Stream, tokenizer: Tokenizer, model: ClipModel) -> None:
        """Read the pairs on rank 0, unless log.geometry_every is 0.

        Raises UserError if there are no pairs to measure, or `pairs` is a stream.
        """
        self.every = config.log.geometry_every
        if not self.every:
            return
        if pairs.streaming:
            raise UserError(
                f"log.geometry_every={self.every} needs random access to the data, which data.source="
                f"{config.data.source} does not have; allowed: 0"
            )
        if distributed.rank() > 0:
            return
        self.model, self.precision = model, config.train.precision
        # that of a micro-batch on this process, which fits in memory
        self.batch_size = config.train.batch_size // (distributed.world_size() * config.train.accumulation)
        tower, transform = model.frozen_towers.get("image"), evaluation_transform(model.inputs)
        # the pixels of a sample id, or its stored features
        read = (
            image_features(config.data, pairs, tower).sample if tower else lambda i: transform(decode(pairs.image(i)))
        )
        images, captions, ids = [], dict[int, str](), probe_ids(config, pairs)
        for sample_id in ids:
            try:
                caption = pairs.caption(sample_id, random.Random(sample_id))
                images.append(read(sample_id))
            except BadSample:
                continue
            captions[sample_id] = caption
        if len(images) < 2:
            raise UserError(
                f"only {len(images)} of the {len(ids)} pairs for geometry can be read; at least 2 are needed"
            )
        self.images = torch.stack(images)
        texts, tower = [*captions.values()], model.frozen_towers.get("text")
        if tower is None:
            self.texts = tokenizer(texts)
        elif isinstance(pairs, EmbeddingPairs):
            self.texts = given_texts(pairs, tower)[torch.tensor([*captions])]
        else:
            self.texts = text_features(tower, tokenizer, texts)[torch.arange(len(texts))]

    def __call__(self, steps: int, progress: Progress, paused: Paused) -> dict[str, float]:
        """Return the geometry on rank 0 every log.geometry_every steps; {} at other steps, and on other ranks.

        All ranks must call this after each step; `steps`: those done.
        """
        if not self.every or steps % self.every:
            return {}
        with paused():
            return self.measure(progress) if distributed.rank() == 0 else {}

    @torch.no_grad()
    def measure(self, progress: Progress) -> dict[str, float]:
        """Return the geometry of normalised features and, as `loss`, the InfoNCE of the pairs.

        The InfoNCE uses the run's temperature, and normalised features unless model.normalise=never.
        """
        was_training = self.model.training
        self.model.eval()
        raw_image, raw_text = self._features()
        self.model.train(was_training)
        logits = float(self.model.temperature(progress)) * raw_image @ raw_text.T
        image, text = F.normalize(raw_image, dim=-1), F.normalize(raw_text, dim=-1)
        diagonal = torch.arange(len(logits), device=logits.device)
        margins = _margins(image, text)
        return {
            "gap": geometry.modality_gap(image, text),
            "uniformity": geometry.uniformity(image, text),
            "alignment": geometry.alignment(image, text),
            "margin_mean": float(margins.mean()),
            "margin_positive": float((margins > 0).double().mean()),
            "loss": float(F.cross_entropy(logits, diagonal) + F.cross_entropy(logits.T, diagonal)) / 2,
        }

    def _features(self) -> tuple[Tensor, Tensor]:
        device, size = next(self.model.parameters()).device, self.batch_size
        images, texts = [], []
        for pixels, tokens in zip(torch.split(self.images, size), torch.split(self.texts, size), strict=True):
            with autocast(self.precision, device):
                images.append(self.model.encode_image(pixels.to(device)))
                texts.append(self.model.encode_text(tokens.to(device)))
        return torch.cat(images), torch.cat(texts)


def probe_ids(config: RunConfig, pairs: PairSource) -> list[int]:
    """Return the sample ids of the pairs to measure: held-out or training pairs, depending on log.geometry_on.

    Raises UserError if held-out pairs are to be measured, but there are none.
    """
    train, held_out = split_held_out(len(pairs), config.data.held_out, pairs.image_of())
    if config.log.geometry_on == "held_out":
        if not len(held_out):
            raise UserError(
                f"log.geometry_every={config.log.geometry_every} needs pairs that are not trained on, and "
                f"data.held_out={config.data.held_out} gives none: set it to a larger share, or log.geometry_on=train"
            )
        return [int(i) for i in held_out[: config.log.geometry_pairs]]
    drawn = random.Random("geometry").sample(range(len(train)), min(len(train), config.log.geometry_pairs))
    return [int(i) for i in train[drawn]]


def _margins(image: Tensor, text: Tensor) -> Tensor:
    """Return paper 1's margins within batches of MARGIN_BATCH; drop a shorter last batch unless it is the only one."""
    batches = list(zip(torch.split(image, MARGIN_BATCH), torch.split(text, MARGIN_BATCH), strict=True))
    full = [b for b in batches if len(b[0]) == MARGIN_BATCH] or batches
    return torch.cat([geometry.margins(i, t) for i, t in full])
