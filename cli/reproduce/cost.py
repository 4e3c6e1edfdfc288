"""What a run costs before it is run: steps, FLOPs, GPU-hours and disk, all by calculation."""

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
    """Dense peak of a GPU as its maker gives it, FLOP/s."""

    bf16: float  # with float32 accumulation; TF32 is half of it on all of them
    fp32: float


CHIPS = {  # NVIDIA's data sheets and white papers, without sparsity; H100 and H200: SXM
    "A100": Chip(312e12, 19.5e12),
    "H100": Chip(989e12, 67e12),
    "H200": Chip(989e12, 67e12),
    "L40S": Chip(362e12, 91.6e12),
    "RTX4090": Chip(165e12, 82.6e12),
}

PAIRS = {  # of data sets that are not made here; what could be downloaded differs from year to year
    "cc3m": 2_786_288,  # paper 1, appendix C.5 (paper 3, appendix H: 2,723,200)
    "cc12m": 9_184_256,  # paper 3, appendix H
    "mscoco": 82_783,  # images of train2014
    "datacomp_small": 12_800_000,  # samples of DataComp's small pool
}
CAPTIONS = {"mscoco": 414_113}  # of train2014: data.captions=each makes each of them a pair


@dataclass(frozen=True)
class Cost:
    """Of one run."""

    steps: int
    gpu_hours: float
    disk: int  # bytes of the checkpoints that it keeps


class Estimator:
    """Costs on one chip; towers are counted once, however many runs have them.

    Raises:
        UserError: an unknown chip.
    """

    def __init__(self, chip: str, share: float) -> None:
        self.chip, self.share = lookup(CHIPS, chip, "chip"), share  # share of the peak that training reaches
        self._flops: dict[str, int] = {}
        self._bytes: dict[str, int] = {}

    def cost(self, config: RunConfig) -> Cost | None:
        """None where the number of pairs is not known before the data are read.

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
    """Of a run on data of so many pairs; None where it depends on their number and that is not known."""
    if pairs is None and config.train.samples is None:
        return None
    return Sampler(pairs or config.train.batch_size, config.train, 0, 0, 1, config.data.held_out).total_steps


def num_pairs(config: RunConfig) -> int | None:
    """How many pairs an epoch has, where that is known without the data."""
    if config.data.source == "scenes":
        return config.data.scenes.num_train
    of_name = CAPTIONS if config.data.captions == "each" else PAIRS
    return config.data.num_samples or of_name.get(config.data.name)


def checkpoint_bytes(config: RunConfig) -> int:
    """Weights, averaged ones too, and AdamW's two moments of what is trained, in float32; columns come on top."""
    with torch.device("meta"):
        model = clip.build_model(config, pretrained=False)
    weights: int = sum(tensor.numel() for tensor in model.state_dict().values())
    trained: int = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return 4 * (weights * (1 if config.train.ema is None else 2) + 2 * trained)
