"""How fast loader processes prepare images, measured on this machine, and the time of a step that waits for them."""

import io
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from clipx.config.presets import PAIRS
from clipx.config.schema import RunConfig
from clipx.data.preprocess.images import decode, open_image
from clipx.data.preprocess.transforms import TrainTransform
from clipx.models.clip import build_model

CORES = 16  # assumed for each GPU where data.workers=auto: that of a machine with 8 GPUs and 128 cores
TRIED = 16  # number of images that are timed
PHOTOGRAPH = 640, 480  # width and height of an image, pixels; most images of MSCOCO
# as img2dataset stores them with the options of docs/data.md, and DataComp's script
STORED = {"cc3m": (341, 256), "cc12m": (341, 256), "datacomp_small": (512, 384), "datacomp_medium": (512, 384)}


@dataclass(frozen=True)
class LoaderRate:
    """Images per second that a core prepares for a run, and the advice if that is too slow."""

    config: RunConfig
    of_core: float

    @property
    def cores(self) -> int:
        """Loader processes for each GPU; with data.workers=0 the training process itself."""
        workers = self.config.data.workers
        return CORES if isinstance(workers, str) else max(workers, 1)

    def step(self, processes: int, seconds: float) -> float:
        """Return the seconds of a step that takes `seconds` on each of the GPUs and may wait for its loaders."""
        loading = self.config.train.batch_size / processes / (self.of_core * self.cores)
        return seconds + loading if self.config.data.workers == 0 else max(seconds, loading)

    @property
    def changes(self) -> str:
        """Settings and machines with which the loaders are faster."""
        data, (width, height) = self.config.data, stored_size(self.config)
        images = PAIRS.get(data.name)
        of_cache = f" ({3 * width * height * images / 1e9:,.0f} GB)" if images else ""
        settings = {
            "data.workers=auto": data.workers == 0,
            "data.augment=device": data.augment == "workers" and data.decode == "exact",
            f"data.cache=memory{of_cache}": data.cache == "none" and data.decode == "exact",
            "data.decode=fast": data.augment == "workers" and data.decode == "exact" and data.cache == "none",
        }
        return ", ".join([name for name, helps in settings.items() if helps] + ["more cores", "smaller stored images"])


def stored_size(config: RunConfig) -> tuple[int, int]:
    """Return width and height of an image of a data set as it is stored, or those of a photograph."""
    return STORED.get(config.data.name, PHOTOGRAPH)


def loader_rate(config: RunConfig) -> LoaderRate | None:
    """Measure the rate of this process. None if it prepares no images: they are cached as they are, or as features."""
    with torch.device("meta"):  # allocates nothing
        inputs = build_model(config, pretrained=False).inputs
    transform = TrainTransform(config.data, inputs)
    cached = config.data.cache == "memory"
    if (cached and transform.fixed) or (config.data.features and config.model.image.frozen):
        return None
    return LoaderRate(config, images_per_s(transform, stored_size(config), cached))


def images_per_s(transform: TrainTransform, size: tuple[int, int], cached: bool) -> float:
    """Return the images that this process prepares in a second: a JPEG as detailed as a photograph."""
    width, height = size
    draw = np.random.default_rng(0)
    coarse = Image.fromarray(draw.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize(size)
    noisy = np.clip(np.asarray(coarse) + draw.normal(0, 8, (height, width, 3)), 0, 255).astype(np.uint8)
    encoded = io.BytesIO()
    Image.fromarray(noisy).save(encoded, "JPEG", quality=90)
    pixels = torch.from_numpy(np.array(decode(encoded.getvalue())))
    start = time.perf_counter()
    for number in range(TRIED):
        transform.for_device(pixels if cached else open_image(encoded.getvalue()), random.Random(number))
    return TRIED / (time.perf_counter() - start)
