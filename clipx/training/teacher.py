"""The frozen teacher of model.teacher: a run of clipx or a published model that embeds the same batch as the towers.

Every rank embeds its own pairs, without gradient. Teacher and student get the same pixels and tokens, so both must
preprocess images and tokenize texts in the same way.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clipx.config.schema import PUBLISHED_PREFIXES, RunConfig
from clipx.models import clip
from clipx.models.towers import lora, open_clip_towers
from clipx.run import checkpoint
from clipx.run.folder import RunFolder, other_checkpoint
from clipx.run.initial_weights import check_same_inputs
from clipx.types import Batch, Inputs

KEY = "model.teacher"


@dataclass
class Teacher:
    """A frozen model that embeds pairs, in evaluation mode."""

    image: Callable[[Tensor], Tensor]  # [b, 3, H, W] -> [b, E of the teacher]
    text: Callable[[Tensor], Tensor]  # int64 [b, L] -> [b, E of the teacher]
    scale: Tensor  # [] the teacher's 1/tau
    frozen_towers: dict[str, str] = field(default_factory=dict)  # side -> digest of the tower whose features it takes

    @torch.no_grad()
    def __call__(self, batch: Batch, size: int) -> tuple[Tensor, Tensor]:
        """Return image and text embeddings, float32 [b, E of the teacher] each, computed `size` pairs at a time."""
        images = [self.image(pixels) for pixels in torch.split(batch.image, size)]
        texts = [self.text(tokens) for tokens in torch.split(batch.text, size)]
        return torch.cat(images).float(), torch.cat(texts).float()


def load_teacher(config: RunConfig, student: Inputs, device: torch.device) -> Teacher:
    """Load model.teacher: a run, checkpoint or arm, `open_clip:NAME/TAG`, `open_clip:NAME/FILE` or `hf-hub:USER/NAME`.

    The teacher normalises its embeddings only if this run does in training (model.normalise=always), and its own run
    does in evaluation.

    Raises UserError: no such model, missing or corrupt weights, or inputs that differ from the student's.
    """
    name, normalise = config.model.teacher, config.model.normalise == "always"
    assert name is not None
    if name.startswith(PUBLISHED_PREFIXES):
        teacher, inputs = _load_published(name, device, normalise)
    else:
        teacher, inputs = _load_run(other_checkpoint(config, KEY, name), device, normalise)
    check_same_inputs(f"{KEY}={name}", inputs, student, "they must agree")
    return teacher


def notes(name: str | None, needs: Collection[str]) -> list[str]:
    """Return a log line if no term of the objective needs the teacher; `name`: model.teacher."""
    if name is None or "teacher" in needs:
        return []
    return [f"{KEY}={name} is not loaded: no term of the objective needs a teacher"]


def _load_published(name: str, device: torch.device, normalise: bool) -> tuple[Teacher, Inputs]:
    model: Any
    model, inputs = open_clip_towers.create_whole_model(name, KEY)
    model.to(device).eval().requires_grad_(False)
    return Teacher(
        lambda pixels: model.encode_image(pixels, normalize=normalise),
        lambda tokens: model.encode_text(tokens, normalize=normalise),
        model.logit_scale.detach().exp(),
    ), inputs


def _load_run(path: Path, device: torch.device, normalise: bool) -> tuple[Teacher, Inputs]:
    checkpoint.verify(path, checkpoint.WEIGHTS)
    config = lora.without(RunFolder.of_checkpoint(path).load_config())
    config.model.normalise = "always" if normalise and config.model.normalise != "never" else "never"
    model = clip.build_model(config, pretrained=False)
    checkpoint.load_weights(model, path)
    model.to(device).eval().requires_grad_(False)
    scale = model.temperature(checkpoint.progress_of(path, config)).to(device)
    return Teacher(model.encode_image, model.encode_text, scale, model.tower_digests()), model.inputs
