"""Table of data sources: each value of data.source, with the function that opens it."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clipx.config.schema import DataConfig
from clipx.data.preprocess import captions as texts
from clipx.data.scenes.captions import negative_caption
from clipx.data.scenes.folder import ensure_rendered
from clipx.data.scenes.samples import content_of
from clipx.data.sources import files, flickr, hf
from clipx.data.sources.base import PairSource, ShardPairs
from clipx.data.sources.embeddings import open_embeddings
from clipx.data.sources.streams import Stream
from clipx.errors import UserError
from clipx.utils.files import expanded
from clipx.utils.registry import lookup


def _root(config: DataConfig) -> Path:
    if config.root is None:
        meaning = meaning_of_root(config.name, config.source, config.split)
        raise UserError(f"data.root is needed for data={config.name}: {meaning}")
    return expanded(config.root)


def _images(config: DataConfig) -> Path:
    return _root(config) / config.split


def _annotations(config: DataConfig) -> Path:
    if config.annotations is None:
        raise UserError(f"data.annotations is needed for data={config.name}: the caption file, below data.root")
    path = _root(config) / config.annotations
    if not path.is_file():
        raise UserError(f"data.annotations: no file {path}")
    if path.resolve().is_relative_to("/proc"):  # an error message could quote environment variables
        raise UserError(f"data.annotations: {path} belongs to the system")
    return path


def _extensions(config: DataConfig) -> list[tuple[str, str]]:
    """Return (extension, column) for each extension of shards that the user named in data.*_column."""
    named = ((config.image_column, "image"), (config.caption_column, texts.MEMBERS.get(config.captions, "txt")))
    return [(name.lower().lstrip("."), column) for name, column in named if name not in ("image", "caption")]


def _shards(config: DataConfig) -> PairSource:
    """Open a folder of shards, or Flickr8k or Flickr30k as distributed."""
    root = _root(config)
    if flickr.is_published(root) and not (root / config.split).is_dir():
        folder, captions = flickr.read_split(root, config.split)
        rows = [(name, caption) for name, of_image in captions.items() for caption in of_image]
        return files.downloaded(folder, root, rows, config.captions, [])
    return ShardPairs(root / config.split, config.captions, config.block, _extensions(config))


def _folder(config: DataConfig) -> PairSource:
    """Open data.root/data.split, or data.root itself if it is not divided into splits."""
    root, split = _root(config), _images(config)
    others = [name for name in ("train", "val", "dev", "test") if (root / name).is_dir()]
    if others and not split.is_dir():
        raise UserError(f"no folder {split}; data.split={config.split} allowed: {', '.join(others)}")
    return files.folder(split if split.is_dir() else root, config)


def _rendered(config: DataConfig) -> Path:
    return ensure_rendered(config.scenes, _root(config) if config.root else None)


class ScenePairs(ShardPairs):
    """Rendered pairs. Training samples with the same content form a group; negative captions are computed, not read."""

    def __init__(self, config: DataConfig) -> None:
        super().__init__(_rendered(config) / config.split, config.captions, config.block)
        self.scenes = config.scenes

    def group_of(self) -> NDArray[np.int32] | None:
        # other splits, and a training split with damaged samples, have other lengths
        return content_of(self.scenes) if len(self) == self.scenes.num_train else None

    def negative(self, sample_id: int, caption: str) -> str:
        return negative_caption(caption, random.Random(f"{self.scenes.seed}/negative/{sample_id}"))


SOURCES: dict[str, Callable[[DataConfig], PairSource | Stream]] = {
    "scenes": ScenePairs,
    "shards": _shards,
    "folder": _folder,
    "coco": lambda config: files.coco(_images(config), _annotations(config), config),
    "karpathy": lambda config: files.karpathy(_images(config), _annotations(config), config),
    "csv": lambda config: files.table(_images(config), _annotations(config), config, ","),
    "tsv": lambda config: files.table(_images(config), _annotations(config), config, "\t"),
    "hf": lambda config: hf.HFPairs(config, _root(config)),
    "embeddings": lambda config: open_embeddings(_images(config), (config.image_column, config.caption_column)),
    "webdataset": lambda config: Stream(config, _extensions(config)),
}
# what data.root is: by source, or by data set where that is more exact; {} stands for data.split
ROOTS = {
    "scenes": "optional: the folder to render to (default: the cache folder)",
    "shards": "the folder that holds {}/*.tar",
    "folder": "the folder of images, each with its captions beside it (7.jpg, 7.txt) or in a folder of its class",
    **dict.fromkeys(("coco", "karpathy"), "the folder that holds the folder of images, {}/, and data.annotations"),
    **dict.fromkeys(("csv", "tsv"), "the folder that holds data.annotations"),
    "hf": "a folder of parquet files or a saved data set, or a name on the hub",
    "embeddings": "a folder of clip-retrieval (img_emb/, text_emb/) or of .npz files",
    "webdataset": "the folder of the shards, or with data.urls the folder of evaluation sets",
    "flickr8k": "the data set as distributed, or the folder that holds {}/*.tar",
}


def meaning_of_root(name: str, source: str, split: str) -> str:
    """Return what data.root is for data=NAME, in words; a plug-in's source is not in ROOTS."""
    return ROOTS.get(name, ROOTS.get(source, "the folder of the data")).format(split).replace("./*", "*")


def ensure_root_folder(config: DataConfig) -> Path:
    """Return the folder that holds the evaluation sets: data.root, or that of the scenes, rendered first if missing.

    Raises UserError for an unknown data.source, or a missing data.root.
    """
    lookup(SOURCES, config.source, "data.source")
    return _rendered(config) if config.source == "scenes" else _root(config)


def open_source(config: DataConfig) -> PairSource | Stream:
    """Return the training pairs of a run. Raises UserError for a wrong or missing setting, or unusable data."""
    pairs = lookup(SOURCES, config.source, "data.source")(config)
    for key, allowed in (("held_out", 0), ("cache", "none"), ("features", False)):
        if pairs.streaming and (value := getattr(config, key)) != allowed:
            given, right = (str(one).lower() for one in (value, allowed))
            reason = f"needs random access, which data.source={config.source} does not have"
            raise UserError(f"data.{key}={given} {reason}; allowed: {right}, or another source")
    return pairs


def open_pair_source(config: DataConfig) -> PairSource:
    """Return the training pairs with random access. Raises UserError like `open_source`, and for a stream."""
    pairs = open_source(config)
    if pairs.streaming:
        raise UserError(f"data.source={config.source} is a stream, which has no random access; use another source")
    return pairs
