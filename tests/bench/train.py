"""Training speed (images per second) against open_clip_train: `make bench-train`, on the GPU if there is one.

train_step and open_clip_train's train_one_epoch take turns in one process, with the same towers, batch size and
precision, on a generated batch in memory. On a GPU, also prints the share of the chip's bf16 peak that clipx reaches,
from the FLOPs that PyTorch counts in a step. Both loops run under the flags of `clipx train`: cudnn.benchmark on, TF32
off for matrix products. open_clip_train's script would switch TF32 on. That would change nothing here, because its
towers and its loss compute in bf16.

The ratio is clipx / open_clip; its target is at least 1.0. ROUNDS and STEPS in the environment set the duration.
`make bench-data` compares the data loaders.
"""

import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import open_clip
import torch
from torch import Tensor, nn

from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig, TrainConfig
from clipx.training.cost import flop_counter
from clipx.training.devices import DEVICES
from clipx.training.forecast import generated_batch
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import log_row, train_step
from clipx.types import Batch, Progress
from clipx.utils.device import choose_device
from tests.bench.measure import seconds

ROUNDS, STEPS = int(os.environ.get("ROUNDS", "3")), int(os.environ.get("STEPS", "30"))
EVERY = 10  # steps between log lines of both


@dataclass(frozen=True)
class Case:
    """Model, batch size and precision of a comparison."""

    model: str  # name in open_clip
    batch: int
    precision: str
    their_precision: str  # name of the same precision in open_clip_train


CPU = Case("mini-vit-48", 128, "fp32", "fp32")
GPU = Case("ViT-B-32", 1024, "bf16", "amp_bf16")


class RepeatedBatch:
    """Loader for train_one_epoch that yields the same batch STEPS times."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.num_batches = batch, STEPS
        self.num_samples = STEPS * len(batch.image)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter([(self.batch.image, self.batch.text)] * STEPS)


def our_components(case: Case, device: torch.device) -> TrainComponents:
    """Build the components that `clipx train` builds."""
    tower = f"open_clip:{case.model}"
    model = ModelConfig(image=ImageTowerConfig(name=tower), text=TextTowerConfig(name=tower))
    train = TrainConfig(epochs=1, batch_size=case.batch, precision=case.precision)
    config = RunConfig(name="bench", recipe="bench", model=model, objective={"clip": {}}, train=train)
    return build_components(config, device, case.batch, "generated")


def our_loop(components: TrainComponents, batch: Batch) -> None:
    """Run STEPS steps of clipx, and compute a log line every EVERY steps."""
    for step in range(STEPS):
        progress = Progress(step, STEPS, 0, 1)
        numbers = train_step(components, batch, progress)
        if step % EVERY == 0:
            log_row(components, numbers, progress)
            components.timer.read()


def their_loop(case: Case, device: torch.device) -> Callable[[Batch], None]:
    """Return a function that runs STEPS steps of open_clip_train on a batch, with its optimizer and schedule."""
    from open_clip_train.scheduler import cosine_lr
    from open_clip_train.train import train_one_epoch

    model: nn.Module = open_clip.create_model(case.model, output_dict=True, device=device)
    named = list(model.named_parameters())
    plain = [p for n, p in named if p.ndim < 2 or "bn" in n or "ln" in n or "bias" in n or "logit_scale" in n]
    others = [p for n, p in named if not any(p is q for q in plain)]
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": others, "weight_decay": 0.2}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
    scheduler = cosine_lr(optimizer, 1e-3, 10, 10**6)
    arguments = SimpleNamespace(
        device=str(device), precision=case.their_precision, distill=False, accum_freq=1, skip_scheduler=False,
        horovod=False, grad_clip_norm=None, log_every_n_steps=EVERY, batch_size=case.batch, world_size=1, rank=0,
        local_rank=0, wandb=False, save_logs=False, log_local=False, distributed=False,
    )  # fmt: skip

    def epoch(batch: Batch) -> None:
        data = {"train": SimpleNamespace(set_epoch=lambda epoch: None, dataloader=RepeatedBatch(batch))}
        train_one_epoch(model, data, open_clip.ClipLoss(), 0, optimizer, None, scheduler, None, arguments)

    return epoch


def loops(case: Case, device: torch.device) -> None:
    """Print the images per second of both loops, the median ratio of the rounds, and our FLOP/s."""
    components = our_components(case, device)
    batch = generated_batch(components)
    theirs = their_loop(case, device)
    times: list[list[float]] = [[], []]
    both: list[Callable[[], None]] = [lambda: our_loop(components, batch), lambda: theirs(batch)]
    for turn in range(2 * ROUNDS + 1):  # the first round warms up
        for k in (0, 1) if turn % 2 else (1, 0):
            taken = seconds(both[k])
            if turn:
                times[k].append(taken)
    ours, peers = (STEPS * case.batch / min(t) for t in times)
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    print(f"loops: clipx {ours:.0f}, open_clip {peers:.0f} images/s (best), median ratio of the rounds {ratio:.2f}")
    with flop_counter() as counter:
        train_step(components, batch, Progress(0, STEPS, 0, 1))
    flops = counter.get_total_flops() * ours / case.batch
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    peak = next((gpu.bf16 for key, gpu in DEVICES.items() if key in name.replace(" ", "")), None)
    share = f", {flops / peak:.1%} of its bf16 peak" if peak and case.precision == "bf16" else ""
    print(f"loops: {counter.get_total_flops() / 1e9:.1f} GFLOP per step, {flops / 1e12:.3g} TFLOP/s on {name}{share}")


def main() -> None:
    device = choose_device("auto")
    case = GPU if device.type == "cuda" else CPU
    if device.type == "cpu":
        torch.set_num_threads(1)
    loops(case, device)


if __name__ == "__main__":
    main()
