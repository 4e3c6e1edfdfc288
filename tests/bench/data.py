"""Data loading speed (images per second and core) of four recipes, beside open_clip's webdataset pipeline.

Run with `CLIPX_DATA=FOLDER make bench-data`; reads FOLDER/photos_full_size. Its photographs are stored at the size of
the recipe's data, as JPEGs of quality 95. Several loaders take turns in one process, without worker processes:
- open_clip: the steps of open_clip_train.data.get_wds_dataset (tar stream, PIL decoding, open_clip's training
  transform, its tokenizer, batches) with the installed webdataset, without shuffle buffers. get_wds_dataset needs
  webdataset <= 0.2.86, so its steps are repeated here. It has the recipe's crop, but no flip and no RandAugment.
- exact: what clipx did before data.augment=device, data.decode=exact; the others are data.decode=fast,
  data.augment=device (the same pixels), and both ways of resizing with data.cache=memory.

Each speed is images per second of processor time, the best of ROUNDS rounds, in brackets the ratio to `exact`. clipx's
loaders leave normalisation to the device, and with data.augment=device also the resize: `finish` is the device's part
on this machine's GPU, or on one core. The last number is the mean difference of fast and exact pixels, of 255.
"""

import io
import os
import random
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import open_clip
import torch
import webdataset
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from cli.settings.compose import compose_run
from clipx.config.schema import DataConfig, TrainConfig
from clipx.data.loading.loader import Loader
from clipx.data.preprocess.images import open_image
from clipx.data.preprocess.transforms import TrainTransform
from clipx.data.sampler import Sampler
from clipx.data.sources.opening import open_pair_source
from clipx.types import Inputs
from clipx.utils.device import keep_freed_memory

BATCH, ROUNDS = 50, 5
# recipe -> shorter side of the stored images, size of the tower's images
RECIPES = {
    "gap_mscoco": (480, 224),
    "counting_datacomp": (384, 224),
    "wpse_cc12m": (256, 224),
    "nuclr_cc3m": (256, 256),
}
TOKENIZER = open_clip.get_tokenizer("ViT-B-32")
LOADERS: dict[str, dict[str, str]] = {
    "exact": {},
    "fast": {"decode": "fast"},
    "device": {"augment": "device"},
    "cached": {"cache": "memory"},
    "cached, device": {"cache": "memory", "augment": "device"},
}


def store(photos: Path, folder: Path, shorter: int) -> None:
    """Write the photographs of a folder with shards at another size."""
    with tarfile.open(folder / "0.tar", "w") as out:
        for path in sorted(photos.glob("*.tar")):
            with tarfile.open(path) as tar:
                for member in tar:
                    data = tar.extractfile(member).read()  # type: ignore[union-attr]
                    if member.name.endswith(".jpg"):
                        image = Image.open(io.BytesIO(data)).convert("RGB")
                        scale, buffer = shorter / min(image.size), io.BytesIO()
                        image.resize((round(image.width * scale), round(image.height * scale))).save(
                            buffer, "JPEG", quality=95
                        )
                        data = buffer.getvalue()
                    member.size = len(data)
                    out.addfile(member, io.BytesIO(data))


def inputs(size: int) -> Inputs:
    mean, std = open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD
    return Inputs(size, mean, std, "bicubic", "shortest", "ViT-B-32", 77)


def config(recipe: str, root: Path, **changes: Any) -> DataConfig:
    found = compose_run([f"recipe={recipe}"]).data
    plain: dict[str, Any] = {
        "source": "shards",
        "root": str(root),
        "split": ".",
        "captions": "first",
        "workers": 0,
        "block": 0,
    }
    return replace(found, **(plain | {"augment": "workers", "cache": "none"} | changes))


def open_clip_batches(root: Path, size: int, scale: tuple[float, ...]) -> Iterator[Any]:
    cfg = PreprocessCfg(size=size, mean=open_clip.OPENAI_DATASET_MEAN, std=open_clip.OPENAI_DATASET_STD)
    transform = image_transform_v2(cfg, is_train=True, aug_cfg={"scale": scale})

    pipeline = webdataset.DataPipeline(
        webdataset.SimpleShardList([str(p) for p in sorted(root.glob("*.tar"))]),
        webdataset.tarfile_to_samples(),
        webdataset.decode("pilrgb"),
        webdataset.rename(image="jpg;png;jpeg;webp", text="txt"),
        webdataset.map_dict(image=transform, text=lambda text: TOKENIZER(text)[0]),
        webdataset.to_tuple("image", "text"),
        webdataset.batched(BATCH, partial=False),
    )
    yield from pipeline


def open_loader(data: DataConfig, size: int) -> Loader:
    pairs = open_pair_source(data)
    sampler = Sampler(len(pairs), TrainConfig(epochs=1, batch_size=BATCH), 0, 0, 1)
    return Loader(data, pairs, sampler, inputs(size), TOKENIZER)


def clipx_batches(data: DataConfig, size: int) -> Iterator[Any]:
    yield from open_loader(data, size).host_batches(0, pin_memory=False)


def speed(batches: Callable[[], Iterator[Any]]) -> float:
    """Return the images per second of processor time over all batches."""
    start, count = time.process_time(), 0
    for _ in batches():
        count += BATCH
    return count / (time.process_time() - start)


def finishing(data: DataConfig, size: int) -> float:
    """Return the images per second that the device resizes, flips and augments."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = open_loader(data, size)
    host = next(loader.host_batches(0, pin_memory=False))
    assert host.crops is not None
    pixels, crops = host.pixels.to(device), type(host.crops)(*(t.to(device) for t in host.crops))
    best = 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        loader.preprocess.transform.finish(pixels, crops, host.crops).cpu()
        best = max(best, BATCH / (time.perf_counter() - start))
    return best


def pixel_difference(recipe: str, root: Path, size: int) -> float:
    """Return the mean absolute difference of pixels (0..255) between fast and exact decoding, with equal crops."""
    pairs = open_pair_source(config(recipe, root))
    exact, fast = (
        TrainTransform(config(recipe, root, decode=d, rand_augment=None), inputs(size)) for d in ("exact", "fast")
    )
    total = 0.0
    for i in range(len(pairs)):
        data, _ = pairs.pair(i, random.Random(0))
        a, b = (t(open_image(data), random.Random(i)) for t in (exact, fast))
        total += float((a.float() - b.float()).abs().mean())
    return total / len(pairs)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    keep_freed_memory()  # as in loader processes
    for recipe, (shorter, size) in RECIPES.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            store(Path(os.environ["CLIPX_DATA"]) / "photos_full_size", root, shorter)
            settings = {name: config(recipe, root, **changes) for name, changes in LOADERS.items()}
            scale = tuple(settings["exact"].crop_scale)
            loaders = {name: partial(clipx_batches, data, size) for name, data in settings.items()}
            pipelines = {"open_clip": partial(open_clip_batches, root, size, scale), **loaders}
            speed(loaders["cached"])  # fills the cache
            best = dict.fromkeys(pipelines, 0.0)
            for _ in range(ROUNDS):
                for name, batches in pipelines.items():
                    best[name] = max(best[name], speed(batches))
            found = ", ".join(f"{name} {rate:.0f} ({rate / best['exact']:.2f})" for name, rate in best.items())
            finished, error = finishing(settings["device"], size), pixel_difference(recipe, root, size)
            print(
                f"{recipe}, {shorter} -> {size} px: {found}; finish {finished:.0f}; fast differs by {error:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
