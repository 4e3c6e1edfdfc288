"""A small data set of Hugging Face `datasets` in a folder."""

from pathlib import Path
from typing import Any

import datasets

from tests.helpers.folder import COLOURS, jpeg


def rows() -> dict[str, list[Any]]:
    """Return columns with an image, three texts and a caption in each row. The last row has no image and no caption."""
    images = [{"bytes": jpeg(colour), "path": None} for colour in COLOURS]
    texts = [[f"{colour} {k}" for k in range(3)] for colour in COLOURS]
    return {"image": [*images, None], "texts": [*texts, ["nothing"]], "caption": [t[0] for t in texts] + [" "]}


def write(folder: Path, saved: bool) -> Path:
    """Write `rows` with save_to_disk if `saved`, else as a parquet file."""
    dataset = datasets.Dataset.from_dict(rows())
    if saved:
        datasets.DatasetDict({"train": dataset}).save_to_disk(str(folder))
    else:
        folder.mkdir(parents=True)
        dataset.to_parquet(str(folder / "train-00000.parquet"))
    return folder
