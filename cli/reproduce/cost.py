"""Estimated cost of a run: steps, FLOPs, GPU-hours and disk space, calculated from its config."""

from dataclasses import dataclass

import torch

from clipx import objectives
from clipx.config.schema import RunConfig
from clipx.data.sampler import Sampler
from clipx.models import clip
from clipx.training.flops import step_flops
from clipx.utils.registry import lookup


@dataclass(frozen=True)
class Chip:
    """Dense peak of a GPU according to its maker, FLOP/s."""

    bf16: float  # with float32 accumulation; the TF32 peak is half of it on all chips here
    fp32: float


CHIPS = {  # from NVIDIA's data sheets and white papers, without sparsity; H100 and H200: SXM
    "A100": Chip(312e12, 19.5e12),
    "H100": Chip(989e12, 67e12),
    "H200": Chip(989e12, 67e12),
    "L40S": Chip(362e12, 91.6e12),
    "RTX4090": Chip(165e12, 82.6e12),
}

PAIRS = {  # pairs in published data sets; how many can be downloaded changes from year to year
    "cc3m": 2_786_288,  # paper 1, appendix C.5 (paper 3, appendix H: 2,723,200)
    "cc12m": 9_184_256,  # paper 3, appendix H
    "mscoco": 82_783,  # images of train2014
    "datacomp_small": 12_800_000,  # samples of DataComp's small pool
}
CAPTIONS = {"mscoco": 414_113}  # of train2014; with data.captions=each every caption is a pair


@dataclass(frozen=True)
class Cost:
    """The cost of one run."""

    steps: int
    gpu_hours: float
    disk: int  # bytes of the checkpoints it keeps


class Estimator:
    """Estimates costs on one chip; FLOPs of the same towers are counted once.

    Args:
        share: fraction of the chip's peak that training reaches.

    Raises:
        UserError: an unknown chip.
    """

    def __init__(self, chip: str, share: float) -> None:
        self.chip, self.share = lookup(CHIPS, chip, "chip"), share
        self._flops: dict[str, int] = {}
        self._bytes: dict[str, int] = {}

    def cost(self, config: RunConfig) -> Cost | None:
        """Return the cost, or None if the number of steps is unknown before the data are read.

        Raises:
            UserError: unknown towers or objectives.
        """
        pairs = num_pairs(config)
        steps = total_steps(config, pairs)
        if steps is None:
            return None
        train = config.train
        key = f"{config.model} {config.temperature} {train.batch_size} {train.ema} {train.grad_checkpointing}"
        if key not in self._flops:
            self._flops[key], self._bytes[key] = step_flops(config), checkpoint_bytes(config)
        peak = {"fp32": self.chip.fp32, "tf32": self.chip.bf16 / 2}.get(config.train.precision, self.chip.bf16)
        columns = objectives.build(config.objective, pairs or 2).columns
        kept = min(train.keep, max(1, -(-steps // train.save_every)))
        kept += (steps // train.keep_every if train.keep_every else 0) + (train.keep_best is not None)
        disk = kept * (self._bytes[key] + 4 * len(columns) * (pairs or 0))
        return Cost(steps, self._flops[key] * steps / (self.share * peak) / 3600, disk)


def total_steps(config: RunConfig, pairs: int | None) -> int | None:
    """Return the steps of a run, or None if they depend on an unknown number of pairs."""
    if pairs is None and config.train.samples is None:
        return None
    return Sampler(pairs or config.train.batch_size, config.train, 0, 0, 1, config.data.held_out).total_steps


def num_pairs(config: RunConfig) -> int | None:
    """Return the pairs of an epoch, or None if only the data tell."""
    if config.data.source == "scenes":
        return config.data.scenes.num_train
    published = CAPTIONS if config.data.captions == "each" else PAIRS
    return config.data.num_samples or published.get(config.data.name)


def checkpoint_bytes(config: RunConfig) -> int:
    """Return the size of weights, averaged weights and AdamW's moments in float32, without the sample table."""
    with torch.device("meta"):
        model = clip.build_model(config, pretrained=False)
    weights: int = sum(tensor.numel() for tensor in model.state_dict().values())
    trained: int = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return 4 * (weights * (1 if config.train.ema is None else 2) + 2 * trained)
