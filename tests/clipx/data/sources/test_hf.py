"""Pairs from Hugging Face `datasets`: rows of a local folder, with the encoded images unchanged."""

import hashlib
import random
from pathlib import Path
from typing import Any

import datasets
import pytest

from clipx.config.schema import DataConfig
from clipx.data.preprocess.images import BadSample
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from tests.helpers.folder import COLOURS, jpeg


@pytest.fixture(autouse=True)
def own_datasets_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test an empty cache of `datasets`, without progress bars."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    datasets.disable_progress_bars()


def rows() -> dict[str, list[Any]]:
    """Return columns with an image, three texts and a caption in each row. The last row has no image and no caption."""
    images = [{"bytes": jpeg(colour), "path": None} for colour in COLOURS]
    texts = [[f"{colour} {k}" for k in range(3)] for colour in COLOURS]
    return {"image": [*images, None], "texts": [*texts, ["nothing"]], "caption": [t[0] for t in texts] + [" "]}


def write(folder: Path, saved: bool) -> Path:
    """Write `rows`: if `saved`, with save_to_disk, otherwise as a parquet file."""
    dataset = datasets.Dataset.from_dict(rows())
    if saved:
        datasets.DatasetDict({"train": dataset}).save_to_disk(str(folder))
    else:
        folder.mkdir(parents=True)
        dataset.to_parquet(str(folder / "train-00000.parquet"))
    return folder


def config(root: Path, caption: str = "caption", captions: str = "first") -> DataConfig:
    return DataConfig(name="h", source="hf", root=str(root), caption_column=caption, captions=captions)


@pytest.mark.parametrize("saved", [True, False])
def test_rows_are_pairs_missing_values_bad_samples_and_the_fingerprint_is_that_of_earlier_versions(
    tmp_path: Path, saved: bool
) -> None:
    """If the formula of the fingerprint changed, runs started with an older version could not be resumed."""
    source = open_pair_source(config(write(tmp_path / "d", saved)))
    assert len(source) == 7
    assert [source.pair(i, random.Random(0)) for i in range(6)] == [(jpeg(c), f"{c} 0") for c in COLOURS]
    with pytest.raises(BadSample, match=r"no image|empty caption"):
        source.pair(6, random.Random(0))
    columns, digest = rows(), hashlib.sha256()
    for k in range(64):
        row = k * 6 // 63
        digest.update(repr((columns["caption"][row], columns["image"][row])).encode())
    assert source.fingerprint == f"7:{digest.hexdigest()[:16]}"
    several = open_pair_source(config(tmp_path / "d", "texts", "random"))
    assert {several.pair(0, random.Random(seed))[1] for seed in range(40)} == {"red 0", "red 1", "red 2"}
    assert several.fingerprint != source.fingerprint


def test_moving_a_folder_of_images_keeps_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").write_bytes(jpeg("red"))
    (tmp_path / "a" / "metadata.csv").write_text("file_name,caption\n1.jpg,a red picture\n")
    first = open_pair_source(config(tmp_path / "a"))
    pair = first.pair(0, random.Random(0))
    moved = open_pair_source(config((tmp_path / "a").rename(tmp_path / "b")))
    assert moved.pair(0, random.Random(0)) == pair
    assert first.fingerprint == moved.fingerprint


def test_the_error_of_a_missing_column_or_data_set_names_it(tmp_path: Path, no_hub: None) -> None:
    root = write(tmp_path / "d", saved=False)
    with pytest.raises(UserError, match=r"data.caption_column=captoin is not a column .* did you mean 'caption'"):
        open_pair_source(config(root, "captoin"))
    wrong = config(root)
    wrong.image_column = "texts"
    with pytest.raises(UserError, match=r"data.image_column=texts is not a column of images in "):
        open_pair_source(wrong)
    no_text = open_pair_source(config(root, "image"))
    with pytest.raises(BadSample, match="no caption"):
        no_text.captions(0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="could not be loaded"):
        open_pair_source(config(tmp_path / "empty"))
    with pytest.raises(UserError, match=r"data.root=nobody/nothing: split train could not be loaded"):
        open_pair_source(config(Path("nobody/nothing")))


def test_other_columns_of_images_are_not_decoded(tmp_path: Path) -> None:
    cell = {"bytes": b"no image", "path": None}
    columns = {"image": [{"bytes": jpeg("red"), "path": None}], "caption": ["red"], "mask": [cell], "views": [[cell]]}
    kinds = {"image": datasets.Image(), "mask": datasets.Image(), "views": datasets.List(datasets.Image())}
    features = datasets.Features(kinds | {"caption": datasets.Value("string")})
    (tmp_path / "d").mkdir()
    datasets.Dataset.from_dict(columns, features=features).to_parquet(tmp_path / "d" / "train.parquet")
    assert open_pair_source(config(tmp_path / "d")).pair(0, random.Random(0)) == (jpeg("red"), "red")


def test_paths_of_images_are_below_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d" / "images").mkdir(parents=True)
    (tmp_path / "d" / "images" / "0.jpg").write_bytes(jpeg("red"))
    cells = {"image": [{"bytes": None, "path": "images/0.jpg"}], "caption": ["red"]}
    datasets.Dataset.from_dict(cells).to_parquet(tmp_path / "d" / "train.parquet")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_pair_source(config(Path("~/d"))).image(0) == jpeg("red")
