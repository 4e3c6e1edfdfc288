"""Training speed (images per second) against open_clip_train: `make bench-train`, on the GPU if there is one.

train_step and open_clip_train's train_one_epoch take turns in one process, with the same towers, batch size and
precision, on a generated batch in memory. Both loops run under the flags of `clipx train`: cudnn.benchmark on, TF32
off for matrix products. open_clip_train's script would switch TF32 on. That would change nothing here, because its
towers and its loss compute in bf16.

The ratio is clipx / open_clip; its target is at least 1.0. ROUNDS and STEPS in the environment set the duration.
`make bench-data` compares the data loaders.
"""

import os
import statistics
from collections.abc import Callable
from types import SimpleNamespace

import open_clip
import torch
from open_clip_train.scheduler import cosine_lr
from open_clip_train.train import train_one_epoch

from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig, TrainConfig
from clipx.training.forecast import generated_batch
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import log_row, train_step
from clipx.types import Batch, Progress
from clipx.utils.device import choose_device
from tests.bench.measure import seconds

ROUNDS, STEPS = int(os.environ.get("ROUNDS", "3")), int(os.environ.get("STEPS", "30"))
EVERY = 10  # steps between log lines of both
DEVICE = choose_device("auto")
# model in open_clip, batch size, precision of clipx, its name in open_clip_train
GPU, CPU = ("ViT-B-32", 1024, "bf16", "amp_bf16"), ("mini-vit-48", 128, "fp32", "fp32")
MODEL, BATCH, PRECISION, THEIR_PRECISION = GPU if DEVICE.type == "cuda" else CPU


class RepeatedBatch(list[tuple[torch.Tensor, torch.Tensor]]):
    """Loader for train_one_epoch that yields the same batch STEPS times."""

    num_batches, num_samples = STEPS, STEPS * BATCH


def our_components() -> TrainComponents:
    """Build the components that `clipx train` builds."""
    tower = f"open_clip:{MODEL}"
    model = ModelConfig(image=ImageTowerConfig(name=tower), text=TextTowerConfig(name=tower))
    train = TrainConfig(epochs=1, batch_size=BATCH, precision=PRECISION)
    config = RunConfig(name="bench", recipe="bench", model=model, objective={"clip": {}}, train=train)
    return build_components(config, DEVICE, BATCH, "generated")


def our_loop(components: TrainComponents, batch: Batch) -> None:
    """Run STEPS steps of clipx, and compute a log line every EVERY steps."""
    for step in range(STEPS):
        progress = Progress(step, STEPS, 0, 1)
        numbers = train_step(components, batch, progress)
        if step % EVERY == 0:
            log_row(components, numbers, progress)
            components.timer.read()


def their_loop(batch: Batch) -> Callable[[], None]:
    """Return a function that runs STEPS steps of open_clip_train on a batch, with its optimizer and schedule."""
    model = open_clip.create_model(MODEL, output_dict=True, device=DEVICE)
    named = list(model.named_parameters())
    plain = [p for n, p in named if p.ndim < 2 or "bn" in n or "ln" in n or "bias" in n or "logit_scale" in n]
    others = [p for n, p in named if not any(p is q for q in plain)]
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": others, "weight_decay": 0.2}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
    scheduler = cosine_lr(optimizer, 1e-3, 10, 10**6)
    arguments = SimpleNamespace(
        device=str(DEVICE), precision=THEIR_PRECISION, distill=False, accum_freq=1, skip_scheduler=False,
        horovod=False, grad_clip_norm=None, log_every_n_steps=EVERY, batch_size=BATCH, world_size=1, rank=0,
        local_rank=0, wandb=False, save_logs=False, log_local=False, distributed=False,
    )  # fmt: skip
    loader = SimpleNamespace(set_epoch=lambda _: None, dataloader=RepeatedBatch([(batch.image, batch.text)] * STEPS))
    return lambda: train_one_epoch(
        model, {"train": loader}, open_clip.ClipLoss(), 0, optimizer, None, scheduler, None, arguments
    )


def main() -> None:
    if DEVICE.type == "cpu":
        torch.set_num_threads(1)
    components = our_components()
    batch = generated_batch(components)
    both: list[Callable[[], None]] = [lambda: our_loop(components, batch), their_loop(batch)]
    for loop in both:  # warms up
        loop()
    ours, theirs = zip(*([seconds(loop) for loop in both] for _ in range(ROUNDS)), strict=True)
    rates = [STEPS * BATCH / min(times) for times in (ours, theirs)]
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    print(f"clipx {rates[0]:.0f}, open_clip {rates[1]:.0f} images/s (best), median ratio of the rounds {ratio:.2f}")


if __name__ == "__main__":
    main()
