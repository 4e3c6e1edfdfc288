"""Training speed (images per second) against open_clip_train: `make bench-train`, on the GPU if there is one.

Two comparisons with the same towers, batch size and precision, in alternating rounds:
- loops: train_step against open_clip_train's train_one_epoch in one process, on a generated batch in memory. On a GPU,
  also prints the share of the chip's bf16 peak that clipx reaches, from the FLOPs that PyTorch counts in a step. Both
  loops run under the flags of `clipx train`: cudnn.benchmark on, TF32 off for matrix products. open_clip_train's script
  would switch TF32 on. That would change nothing here, because its towers and its loss compute in bf16.
- scripts: `clipx train` against open_clip_train.main, each in a separate process, on the same shards of generated
  images with the same number of loader workers. The first line of each log is ignored: it includes the start-up.

`ratio` is clipx / open_clip; the target of both ratios is at least 1.0. ROUNDS and STEPS in the environment set the
duration. open_clip_train needs webdataset <= 0.2.86, which this script installs into a folder of the cache.
"""

import io
import os
import re
import statistics
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import open_clip
import torch
from PIL import Image
from torch import Tensor, nn

from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig, TrainConfig
from clipx.models.towers import open_clip_towers
from clipx.training.cost import flop_counter
from clipx.training.devices import DEVICES
from clipx.training.forecast import generated_batch
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import log_row, train_step
from clipx.types import Batch, Progress
from clipx.utils.device import choose_device
from clipx.utils.files import cache_home
from tests.bench.measure import run, seconds
from tests.helpers.folder import add
from tests.helpers.runs import log

ROUNDS, STEPS = int(os.environ.get("ROUNDS", "3")), int(os.environ.get("STEPS", "30"))
EVERY = 10  # steps between lines of both logs
SHARDS, PER_SHARD = 16, 256  # number of shards, images in each
WEBDATASET = "0.2.86"  # version for open_clip_train
CONFIGS = Path(open_clip_towers.__file__).parent / "configs"
OPEN_CLIP_TRAIN = """
import sys, open_clip
from open_clip_train.main import main
open_clip.add_model_config(sys.argv[1])  # our small towers
main(sys.argv[2:])
"""


@dataclass(frozen=True)
class Case:
    """Model and data of a comparison."""

    model: str  # name in open_clip
    side: int  # height and width of the images in the shards, pixels
    batch: int
    precision: str
    their_precision: str  # name of the same precision in open_clip_train
    workers: int


CPU = Case("mini-vit-48", 64, 128, "fp32", "fp32", 1)
GPU = Case("ViT-B-32", 256, 1024, "bf16", "amp_bf16", max(1, (os.cpu_count() or 1) - 2))


def write_shards(folder: Path, side: int) -> None:
    """Write shards of smooth random images, which compress about like photographs, with short captions."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as tar:
            for number in range(PER_SHARD):
                coarse = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                picture = io.BytesIO()
                Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(picture, "JPEG")
                words = f"a picture of {generator.integers(1000)} things and {generator.integers(1000)} others"
                for suffix, data in (("jpg", picture.getvalue()), ("txt", words.encode())):
                    add(tar, f"{shard * PER_SHARD + number:06d}.{suffix}", data)


def our_script(case: Case, shards: Path, out: Path, device: str) -> float:
    """Run `clipx train`; return the images per second in log.jsonl."""
    arguments = {
        "recipe": "demo", "data": "shards", "data.root": shards, "data.name": "bench", "data.workers": case.workers,
        "model.image.name": f"open_clip:{case.model}", "model.text.name": f"open_clip:{case.model}",
        "train.samples": STEPS * case.batch, "train.batch_size": case.batch, "train.precision": case.precision,
        "train.device": device, "train.save_every": 10**6, "log.every": EVERY, "runs": out, "name": "ours",
    }  # fmt: skip
    command = [sys.executable, "-m", "cli.main", "train", *(f"{key}={value}" for key, value in arguments.items())]
    run(command, dict(os.environ))
    rows = log(out / "ours" / "s0")
    return float(statistics.harmonic_mean([row["images_per_s"] for row in rows[1:]]))


def their_script(case: Case, shards: Path, out: Path, device: str) -> float:
    """Run open_clip_train; return the images per second, from the mean step time in each line of out.log."""
    arguments = {
        "dataset-type": "webdataset", "train-data": f"{shards}/{{00000..{SHARDS - 1:05d}}}.tar",
        "train-num-samples": STEPS * case.batch, "batch-size": case.batch, "workers": case.workers, "epochs": 1,
        "model": case.model, "precision": case.their_precision, "device": device, "lr": 1e-3, "warmup": 10, "logs": out,
        "name": "theirs", "log-every-n-steps": EVERY, "save-frequency": 0, "report-to": "",
    }  # fmt: skip
    options = [text for key, value in arguments.items() for text in (f"--{key}", str(value))]
    path = os.pathsep.join(filter(None, [str(webdataset_folder()), os.environ.get("PYTHONPATH", "")]))
    run([sys.executable, "-c", OPEN_CLIP_TRAIN, str(CONFIGS), *options], {**os.environ, "PYTHONPATH": path})
    seconds = re.findall(r"Batch \(t\): ([\d.]+)", (out / "theirs" / "out.log").read_text())
    return case.batch / statistics.mean(map(float, seconds[1:]))


def webdataset_folder() -> Path:
    """Return the folder of webdataset 0.2.86; install the package there if it is missing."""
    folder = cache_home() / "bench" / f"webdataset-{WEBDATASET}"
    if not folder.exists():
        target = ["--target", str(folder), "--no-deps", "--quiet", f"webdataset=={WEBDATASET}"]
        run([sys.executable, "-m", "pip", "install", *target], dict(os.environ))
    return folder


def scripts(case: Case, device: str) -> None:
    """Compare the scripts: print one line per round and the median ratio."""
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        shards = Path(name) / "shards"
        write_shards(shards, case.side)
        for turn in range(ROUNDS):
            out = Path(name) / str(turn)
            runs: list[Callable[[], float]] = [
                lambda out=out: our_script(case, shards, out, device),  # type: ignore[misc]
                lambda out=out: their_script(case, shards, out, device),  # type: ignore[misc]
            ]
            rates = [0.0, 0.0]
            for k in (0, 1) if turn % 2 else (1, 0):
                rates[k] = runs[k]()
            ratios.append(rates[0] / rates[1])
            print(f"scripts, round {turn + 1}: clipx {rates[0]:.0f}, open_clip {rates[1]:.0f} images/s", flush=True)
    print(f"scripts: {case.model}, {case.precision}, batch {case.batch}: ratio {statistics.median(ratios):.2f}")


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
    """Compare the loops: print the images per second of both, the median ratio of the rounds, and our FLOP/s."""
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
        os.environ["OMP_NUM_THREADS"] = "1"
    loops(case, device)
    scripts(case, device.type)


if __name__ == "__main__":
    main()
