"""The table of data sources: where training pairs come from."""

from collections.abc import Callable
from pathlib import Path

from clipx.config.schema import DataConfig
from clipx.data import scenes
from clipx.data.sources import files, hf, streams
from clipx.data.sources.base import PairSource, ShardPairs
from clipx.data.sources.streams import Stream
from clipx.errors import UserError
from clipx.utils.registry import lookup


def _root(config: DataConfig) -> Path:
    if config.root is None:
        raise UserError(f"data.root is needed for data={config.name}: {ROOTS[config.source].format(config.split)}")
    return Path(config.root)


def _annotations(config: DataConfig) -> Path:
    if config.annotations is None:
        raise UserError(f"data.annotations is needed for data={config.name}: the file of the captions, below data.root")
    return _root(config) / config.annotations


def _rendered(config: DataConfig) -> Path:
    return scenes.ensure(config.scenes, Path(config.root) if config.root else None)


def _shards(config: DataConfig) -> PairSource:
    return ShardPairs(_root(config) / config.split, config.captions, config.block)


def _scenes(config: DataConfig) -> PairSource:
    return ShardPairs(_rendered(config) / config.split, config.captions, config.block)


def _coco(config: DataConfig) -> PairSource:
    return files.coco(_root(config) / config.split, _annotations(config), config)


def _csv(config: DataConfig) -> PairSource:
    return files.table(_root(config) / config.split, _annotations(config), config, ",")


def _tsv(config: DataConfig) -> PairSource:
    return files.table(_root(config) / config.split, _annotations(config), config, "\t")


def _hf(config: DataConfig) -> PairSource:
    _root(config)
    return hf.HFPairs(config)


def _webdataset(config: DataConfig) -> Stream:
    return streams.ShardStream(config)


def _hf_stream(config: DataConfig) -> Stream:
    _root(config)
    return streams.HFStream(config)


PAIRS: dict[str, Callable[[DataConfig], PairSource]] = {
    "scenes": _scenes,
    "shards": _shards,
    "coco": _coco,
    "csv": _csv,
    "tsv": _tsv,
    "hf": _hf,
}
STREAMS: dict[str, Callable[[DataConfig], Stream]] = {"webdataset": _webdataset, "hf_stream": _hf_stream}
SOURCES: dict[str, Callable[[DataConfig], PairSource | Stream]] = {**PAIRS, **STREAMS}
# what data.root is; {} is data.split
ROOTS = {
    "scenes": "not needed: the folder to render to, by default in the cache",
    "shards": "the folder that holds {}/*.tar",
    "coco": "the folder that holds the images' folder {}/ and data.annotations",
    "csv": "the folder that holds data.annotations",
    "tsv": "the folder that holds data.annotations",
    "hf": "a folder of parquet files or a saved data set, or a name on the hub",
    "hf_stream": "a folder of parquet files or a saved data set, or a name on the hub",
    "webdataset": "the shards, or the folder of evaluation sets",
}


def root_folder(config: DataConfig) -> Path:
    """The folder of the evaluation sets that belong to the training data; scenes are made first.

    Raises:
        UserError: unknown data.source, or a missing root.
    """
    lookup(SOURCES, config.source, "data.source")
    return _rendered(config) if config.source == "scenes" else _root(config)


def open_source(config: DataConfig) -> PairSource | Stream:
    """The training pairs of a run.

    Raises:
        UserError: unknown data.source, a missing setting, or nothing usable where it points.
    """
    return lookup(SOURCES, config.source, "data.source")(config)


def open_pairs(config: DataConfig) -> PairSource:
    """As `open_source`, for what needs random access.

    Raises:
        UserError: as `open_source`, or a streaming source.
    """
    return lookup(PAIRS, config.source, "data.source")(config)
