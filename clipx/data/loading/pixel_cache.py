"""Decoded images in memory that all processes of a machine share (data.cache=memory).

The pixels are in a memory-mapped file in the cache folder, so that all processes share one copy, also in containers
with a small /dev/shm. Each process that uses a cache holds a lock on its sizes.npy, which the system releases if the
process dies. The last process that uses a cache removes it. If that process is killed, the next process that opens any
pixel cache removes it.
"""

import fcntl
import json
import shutil
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from clipx.data.preprocess.images import BadSample, open_image, to_rgb
from clipx.data.preprocess.transforms import TrainTransform
from clipx.data.sources.base import PairSource
from clipx.utils.files import cache_home, content_hash, lock, new_folder
from clipx.utils.memory import check_room

LOCK = "pixel cache"  # held while files are written or removed
KEPT = 4  # number of data sets whose images (and captions) a process keeps for its next runs
Array = NDArray[Any]


@dataclass
class PixelCache:
    """The n images of a source: central squares of S x S pixels if the transform is `fixed`, else whole images."""

    data: Array  # uint8; squares: [n, 3, S, S]; whole images: [bytes], each image [H, W, 3] at its offset
    offsets: Array  # int64 [n + 1], first byte of each whole image, then the number of bytes
    sizes: Array  # int32 [n, 2], width and height of the encoded images; 0 if an image cannot be opened
    errors: dict[int, str]  # image number -> reason why the image is bad
    image_of: Array | None  # image number of each sample; None: the sample id

    def image_numbers(self, ids: Array) -> Array:
        """Return the image numbers of samples."""
        return ids if self.image_of is None else self.image_of[ids]

    def image(self, number: int) -> Image.Image:
        """Return a whole image, if the cache has whole images. Raises BadSample if the image is bad."""
        if number in self.errors:
            raise BadSample(self.errors[number])
        width, height = self.sizes[number]
        pixels = self.data[self.offsets[number] : self.offsets[number + 1]]
        return Image.fromarray(pixels.reshape(height, width, 3))


# key -> cache, locked file; least recently used first
_opened: OrderedDict[str, tuple[PixelCache, Any]] = OrderedDict()


def open_pixels(source: PairSource, transform: TrainTransform) -> PixelCache:
    """Return the images of a source; decode them unless a process of this machine has them open already.

    Raises UserError if the images do not fit into the free memory or disk space.
    """
    fixed = [transform.size, transform.interpolation] if transform.fixed else []
    key = content_hash([source.fingerprint, source.image_sizes(), *fixed])
    if key not in _opened:
        while len(_opened) >= KEPT:
            _opened.popitem(last=False)[1][1].close()
        if not _opened:
            Finalize(None, _release, exitpriority=10)  # atexit functions do not run in processes of a pool
        _opened[key] = _open(cache_home() / "pixels" / key, source, transform)
    _opened.move_to_end(key)
    return _opened[key][0]


def _release() -> None:
    """Close all files, and remove those that no other process uses."""
    while _opened:
        _opened.popitem()[1][1].close()
    with lock(LOCK):
        _remove_unused(cache_home() / "pixels")


def _open(folder: Path, source: PairSource, transform: TrainTransform) -> tuple[PixelCache, Any]:
    with lock(LOCK):  # one process decodes, the others wait
        _remove_unused(folder.parent)
        if not folder.is_dir():
            _write(folder, source, transform)
        handle = (folder / "sizes.npy").open("rb")
        fcntl.flock(handle, fcntl.LOCK_SH)
    sizes, image_of = np.load(folder / "sizes.npy"), source.image_of()
    errors = {int(number): text for number, text in json.loads((folder / "errors.json").read_text()).items()}
    data: Array = np.memmap(folder / "pixels", np.uint8, "r")
    if transform.fixed:
        data = data[:-1].reshape(len(sizes), 3, transform.size, transform.size)
    return PixelCache(data, _offsets(sizes), sizes, errors, image_of), handle


def _offsets(sizes: Array) -> Array:
    """Return the first byte of each whole image, then the number of bytes."""
    return np.concatenate([[0], np.cumsum(3 * sizes.prod(axis=1, dtype=np.int64))])


def _remove_unused(folder: Path) -> None:
    """Remove the caches in `folder` that no process uses; the caller holds LOCK."""
    for path in folder.glob("*"):
        try:
            # r+b, because NFS refuses an exclusive lock on a file opened for reading
            with (path / "sizes.npy").open("r+b") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:  # the unfinished folder of a killed process
            shutil.rmtree(path, ignore_errors=True)
        except OSError:  # in use, or the file system has no locks
            continue


def _write(folder: Path, source: PairSource, transform: TrainTransform) -> None:
    """Decode every image once, and write the pixels, sizes and errors to `folder`."""
    image_of = source.image_of()
    # the first sample of each image
    sample_ids = range(len(source)) if image_of is None else np.unique(image_of, return_index=True)[1].tolist()
    n = len(sample_ids)
    sizes = np.zeros((n, 2), np.int32)
    errors: dict[int, str] = {}

    def each(action: Callable[[int, Image.Image], None]) -> None:
        for number, sample_id in enumerate(sample_ids):
            try:
                action(number, open_image(source.image(sample_id)))
            except BadSample as error:
                errors[number] = str(error)

    def measure(number: int, image: Image.Image) -> None:
        sizes[number] = image.size

    each(measure)  # reads only headers
    offsets = np.arange(n + 1) * 3 * transform.size**2 if transform.fixed else _offsets(sizes)
    folder.parent.mkdir(parents=True, exist_ok=True)
    check_room(int(offsets[-1]), folder.parent, f"data.cache=memory with {n:,} decoded images")
    with new_folder(folder) as temporary:
        with (temporary / "pixels").open("wb") as file:

            def decode(number: int, image: Image.Image) -> None:
                pixels = transform.central_square(image).numpy() if transform.fixed else np.array(to_rgb(image))
                file.seek(int(offsets[number]))
                file.write(pixels.tobytes())

            each(decode)
            file.truncate(int(offsets[-1]) + 1)  # one more byte: an empty file cannot be mapped
        np.save(temporary / "sizes.npy", sizes)
        (temporary / "errors.json").write_text(json.dumps(errors))
