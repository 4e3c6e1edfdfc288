"""Geometry while training: gap, uniformity, alignment and margins of the same pairs, every so many steps."""

import random
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from clipx import distributed, geometry
from clipx.config.schema import RunConfig
from clipx.data.preprocess.images import BadSample, decode
from clipx.data.preprocess.tokenizer import Tokenizer
from clipx.data.preprocess.transforms import evaluation_transform
from clipx.data.sampler import split_held_out
from clipx.data.sources.base import PairSource
from clipx.data.sources.opening import STREAMS, open_pair_source
from clipx.errors import UserError
from clipx.models.clip import ClipModel
from clipx.types import Progress
from clipx.utils.device import autocast

MARGIN_BATCH = 64  # paper 1 takes margins within batches of 64
Watch = Callable[[int, Progress], dict[str, dict[str, float]]]  # (steps done, where the run stands)


def check(config: RunConfig) -> None:
    """Raises UserError, on every rank and before anything is built, where there is something to watch in a stream."""
    if config.log.geometry_every and config.data.source in STREAMS:
        raise UserError(
            f"log.geometry_every={config.log.geometry_every} needs random access to the data, which "
            f"data.source={config.data.source} has not; allowed: 0"
        )


def build_probe(config: RunConfig, tokenizer: Tokenizer, model: ClipModel) -> Watch:
    """What to ask after each step: {"geometry": values} every `log.geometry_every` steps, else {}; rank 0 only.

    Raises:
        UserError: no pairs to watch.
    """
    every = config.log.geometry_every
    if not every or distributed.rank() > 0:
        return lambda steps, progress: {}
    probe = Probe(config, open_pair_source(config.data), tokenizer, model)
    return lambda steps, progress: {} if steps % every else {"geometry": probe.measure(progress)}


class Probe:
    """Fixed pairs, decoded once without augmentation, and what the model makes of them."""

    def __init__(self, config: RunConfig, pairs: PairSource, tokenizer: Tokenizer, model: ClipModel) -> None:
        self.model = model
        self.precision = config.train.precision
        self.batch_size = config.train.batch_size
        ids = chosen(config, pairs)
        transform = evaluation_transform(model.inputs)
        decoded = [(transform(image), caption) for image, caption in _good(pairs, ids)]
        if len(decoded) < 2:
            raise UserError(f"log.geometry_pairs: {len(decoded)} of {len(ids)} pairs are good, 2 are needed")
        self.images = torch.stack([image for image, _ in decoded])
        self.texts = tokenizer([caption for _, caption in decoded])

    @torch.no_grad()
    def measure(self, progress: Progress) -> dict[str, float]:
        """The geometry now; `loss` is the InfoNCE of the pairs among themselves, whatever the run's objective.

        Features are normalised, also where training does not, but for the loss, which has the run's similarity.
        """
        was_training = self.model.training
        self.model.eval()
        raw_image, raw_text = self._features()
        self.model.train(was_training)
        scale = float(self.model.temperature(progress))
        logits = scale * raw_image @ raw_text.T
        image, text = F.normalize(raw_image, dim=-1), F.normalize(raw_text, dim=-1)
        own = torch.arange(len(logits), device=logits.device)
        margins = _margins(image, text)
        return {
            "gap": geometry.modality_gap(image, text),
            "uniformity": geometry.uniformity(image, text),
            "alignment": geometry.alignment(image, text),
            "margin_mean": float(margins.mean()),
            "margin_positive": float((margins > 0).double().mean()),
            "loss": float(F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2,
        }

    def _features(self) -> tuple[Tensor, Tensor]:
        device, size = next(self.model.parameters()).device, self.batch_size
        images, texts = [], []
        for pixels, tokens in zip(torch.split(self.images, size), torch.split(self.texts, size), strict=True):
            with autocast(self.precision, device):
                images.append(self.model.encode_image(pixels.to(device)))
                texts.append(self.model.encode_text(tokens.to(device)))
        return torch.cat(images), torch.cat(texts)


def chosen(config: RunConfig, pairs: PairSource) -> list[int]:
    """Ids of the pairs to watch."""
    train, held_out = split_held_out(len(pairs), config.data.held_out, pairs.image_of())
    if config.log.geometry_on == "held_out":
        if not len(held_out):
            raise UserError(
                f"log.geometry_every={config.log.geometry_every} needs pairs that are not trained on: "
                "set data.held_out to their share, or log.geometry_on=train"
            )
        return [int(i) for i in held_out[: config.log.geometry_pairs]]
    if config.log.geometry_on != "train":
        raise UserError(f"log.geometry_on={config.log.geometry_on} is not known; allowed: held_out, train")
    return random.Random("geometry").sample([int(i) for i in train], min(len(train), config.log.geometry_pairs))


def _good(pairs: PairSource, ids: list[int]) -> Iterator[tuple[Image.Image, str]]:
    for sample_id in ids:
        try:
            data, caption = pairs.pair(sample_id, random.Random(sample_id))
            yield decode(data), caption
        except BadSample:
            continue


def _margins(image: Tensor, text: Tensor) -> Tensor:
    """Margins of paper 1 within batches of MARGIN_BATCH; a shorter last one is left out if there are others."""
    batches = list(zip(torch.split(image, MARGIN_BATCH), torch.split(text, MARGIN_BATCH), strict=True))
    whole = [b for b in batches if len(b[0]) == MARGIN_BATCH] or batches
    return torch.cat([geometry.margins(i, t) for i, t in whole])
