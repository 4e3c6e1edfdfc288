"""Pairs from Hugging Face `datasets`: a local folder (parquet, saved data set) or a name on the hub."""

import hashlib
from pathlib import Path
from typing import Any

from clipx.config.schema import DataConfig
from clipx.data.preprocess import captions as texts
from clipx.data.preprocess.images import BadSample, read_image
from clipx.data.sources.base import PairSource, evenly_spaced
from clipx.data.sources.files import size_of
from clipx.errors import UserError, one_line
from clipx.utils.hub import quiet_hub
from clipx.utils.registry import one_of, suggest


class HFPairs(PairSource):
    """Rows of a data set in memory-mapped Arrow files; a caption cell contains one text or a list of texts."""

    def __init__(self, config: DataConfig, root: Path) -> None:
        self.image_column, self.caption_column = config.image_column, config.caption_column
        self.draws_caption = config.captions == "random"
        self.root = root
        self.rows = load(config, root)
        if not len(self.rows):
            raise UserError(f"data.root={root} has no rows in split {config.split}")
        self.fingerprint = f"{len(self)}:{self._digest()}"

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, sample_id: int) -> str:
        return f"row {sample_id}"

    def image(self, sample_id: int) -> bytes:
        """Return the encoded image of a row; its path may be relative to data.root. Raises BadSample or Fault."""
        cell = self.rows[sample_id][self.image_column] or {"bytes": None, "path": None}
        if cell["bytes"] is not None:
            return bytes(cell["bytes"])
        if cell["path"] is None:
            raise BadSample("no image")
        return read_image(self.root / str(cell["path"]))

    def captions(self, sample_id: int) -> list[str]:
        return texts.all_from_cell(self.rows[sample_id][self.caption_column])

    def image_sizes(self) -> list[int]:
        cells = [self.rows[number][self.image_column] for number in evenly_spaced(len(self))]
        named = (cell["path"] for cell in cells if cell and cell["path"] and cell["bytes"] is None)
        return [size_of(self.root / path) for path in named]

    def _digest(self) -> str:
        """Hash some rows. `datasets` has a fingerprint too, but that depends on paths and the package's version."""
        digest = hashlib.sha256()
        for number in evenly_spaced(len(self)):
            row = self.rows[number]
            cell = row[self.image_column]
            if cell and cell["path"]:  # absolute if the data set is a folder of image files
                cell = {**cell, "path": Path(cell["path"]).name}
            digest.update(repr((row[self.caption_column], cell)).encode())
        return digest.hexdigest()[:16]


def load(config: DataConfig, root: Path) -> Any:
    """Return the rows of data.split. Images are not decoded.

    Raises UserError if the data set cannot be loaded, a column is missing, or data.captions is "each".
    """
    import datasets
    from datasets.features.features import require_decoding

    one_of(config.captions, ("first", "random"), "data.captions")
    try:
        if (root / "dataset_dict.json").is_file() or (root / "state.json").is_file():
            saved = datasets.load_from_disk(root)
            rows = saved[config.split] if (root / "dataset_dict.json").is_file() else saved
        else:
            with quiet_hub(fetching=not root.is_dir()):
                name = str(root if root.is_dir() else config.root)
                rows = datasets.load_dataset(name, split=config.split)
    except Exception as error:  # dataset builders and the hub's client raise many types
        raise UserError(f"data.root={root}: split {config.split} could not be loaded: {one_line(error)}") from error
    features = rows.features
    for key in ("image_column", "caption_column"):
        column = getattr(config, key)
        if column not in features:
            raise UserError(f"data.{key}={column} is not a column of {root}; {suggest(column, features)}")
    try:
        images = {name for name, feature in features.items() if isinstance(feature, datasets.Image)}
        for column in {config.image_column} | images:  # reading a row would decode all of them
            rows = rows.cast_column(column, datasets.Image(decode=False))
        given = (config.image_column, config.caption_column)
        # reading a row decodes lists of images, sound and videos, so those columns are left out
        kept = [name for name, feature in rows.features.items() if name in given or not require_decoding(feature)]
        return rows.select_columns(kept)
    except Exception as error:  # pyarrow's own types
        column = f"data.image_column={config.image_column}"
        raise UserError(f"{column} is not a column of images in {root}: {one_line(error)}") from error
