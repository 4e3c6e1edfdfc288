"""Data loading speed (images per second and core) against open_clip's webdataset pipeline.

Run with `CLIPX_DATA=FOLDER make bench-data`; reads FOLDER/photos_full_size. Two pipelines turn the shards into
normalised batches, in alternating rounds of one process, with the same augmentation and without worker processes:
- open_clip: the steps of open_clip_train.data.get_wds_dataset (tar stream, PIL decoding, open_clip's training
  transform, its tokenizer, batches) with the installed webdataset, without shuffle buffers. get_wds_dataset needs
  webdataset <= 0.2.86, so its steps are repeated here.
- clipx: the loader, which reads the samples in random order, with exact and with fast decoding.

Each speed is images per second of processor time, the best of 5 rounds. `ratio` is clipx / open_clip, printed with its
target; higher is better. For each image size, the last line gives the pixel error of fast decoding.
"""

import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import open_clip
import torch
import webdataset
from open_clip.transform import PreprocessCfg, image_transform_v2

from clipx.config.schema import DataConfig, TrainConfig
from clipx.data.loading.loader import Loader
from clipx.data.preprocess.images import open_image
from clipx.data.preprocess.transforms import TrainTransform
from clipx.data.sampler import Sampler
from clipx.data.sources.opening import open_pair_source
from clipx.types import Inputs

CROP_SCALE = (0.9, 1.0)  # open_clip's default
BATCH, ROUNDS = 50, 5
TARGETS = {("exact", 224): 1.0, ("exact", 112): 1.0, ("fast", 224): 1.25, ("fast", 112): 1.6}  # of `ratio`


def inputs(size: int) -> Inputs:
    mean, std = open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD
    return Inputs(size, mean, std, "bicubic", "shortest", "ViT-B-32", 77)


def config(root: Path, decode: str) -> DataConfig:
    return DataConfig(
        name="b", source="shards", root=str(root), split=".", workers=0, decode=decode, crop_scale=list(CROP_SCALE)
    )


def open_clip_batches(root: Path, size: int) -> Iterator[Any]:
    cfg = PreprocessCfg(size=size, mean=open_clip.OPENAI_DATASET_MEAN, std=open_clip.OPENAI_DATASET_STD)
    transform = image_transform_v2(cfg, is_train=True, aug_cfg={"scale": CROP_SCALE})
    tokenizer = open_clip.get_tokenizer("ViT-B-32")
    pipeline = webdataset.DataPipeline(
        webdataset.SimpleShardList([str(p) for p in sorted(root.glob("*.tar"))]),
        webdataset.tarfile_to_samples(),
        webdataset.decode("pilrgb"),
        webdataset.rename(image="jpg;png;jpeg;webp", text="txt"),
        webdataset.map_dict(image=transform, text=lambda text: tokenizer(text)[0]),
        webdataset.to_tuple("image", "text"),
        webdataset.batched(BATCH, partial=False),
    )
    yield from pipeline


def clipx_batches(root: Path, size: int, decode: str) -> Iterator[Any]:
    data = config(root, decode)
    pairs = open_pair_source(data)
    sampler = Sampler(len(pairs), TrainConfig(epochs=1, batch_size=BATCH), 0, 0, 1)
    loader = Loader(data, pairs, sampler, inputs(size), open_clip.get_tokenizer("ViT-B-32"))
    yield from loader.batches(0, torch.device("cpu"))


def speed(batches: Callable[[], Iterator[Any]]) -> float:
    """Return the images per second of processor time over all batches."""
    start, count = time.process_time(), 0
    for _ in batches():
        count += BATCH
    return count / (time.process_time() - start)


def pixel_difference(root: Path, size: int) -> float:
    """Return the mean absolute difference of pixels (0..255) between fast and exact decoding, with equal crops."""
    pairs = open_pair_source(config(root, "exact"))
    exact, fast = (TrainTransform(config(root, d), inputs(size)) for d in ("exact", "fast"))
    total = 0.0
    for i in range(len(pairs)):
        data, _ = pairs.pair(i, random.Random(0))
        a, b = (t(open_image(data), random.Random(i)) for t in (exact, fast))
        total += float((a.float() - b.float()).abs().mean())
    return total / len(pairs)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    root = Path(os.environ["CLIPX_DATA"]) / "photos_full_size"
    for size in (224, 112):
        pipelines: dict[str, Callable[[], Iterator[Any]]] = {
            "open_clip": lambda size=size: open_clip_batches(root, size),  # type: ignore[misc]
            "exact": lambda size=size: clipx_batches(root, size, "exact"),  # type: ignore[misc]
            "fast": lambda size=size: clipx_batches(root, size, "fast"),  # type: ignore[misc]
        }
        best = dict.fromkeys(pipelines, 0.0)
        for _ in range(ROUNDS):
            for name, batches in pipelines.items():
                best[name] = max(best[name], speed(batches))
        print(f"{size} px: open_clip {best['open_clip']:.0f} images/s per core")
        for name in ("exact", "fast"):
            ratio, target = best[name] / best["open_clip"], TARGETS[name, size]
            print(f"{size} px: {name:9s} {best[name]:.0f} images/s per core, ratio {ratio:.2f} (target: {target})")
        error = pixel_difference(root, size)
        print(f"{size} px: mean absolute difference of fast and exact pixels {error:.2f} of 255")


if __name__ == "__main__":
    main()
