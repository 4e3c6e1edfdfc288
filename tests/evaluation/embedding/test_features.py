"""Feature extraction: order of rows, a single pass over the images, and a cache that depends on model and content."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL.Image import Image
from torch import Tensor

from clipx.errors import UserError
from evaluation.datasets.kinds import AnyDataset
from evaluation.datasets.opening import open_dataset
from evaluation.embedding.features import Loading, cache_key, extract
from evaluation.embedding.kept_inputs import forget
from evaluation.types import Encoder, FeatureRequest, Features
from tests.helpers import fakes


def run(
    encoder: Encoder, dataset: AnyDataset, views: list[str], cache: Path, batch_size: int = 5, workers: int = 0
) -> Features:
    split = dataset.splits[0]
    requests = [FeatureRequest(dataset.name, split, view) for view in views]  # type: ignore[arg-type]
    return extract(encoder, {dataset.name: dataset}, requests, cache, Loading(batch_size, workers, "cpu"))


def counting(encoder: Encoder) -> tuple[Encoder, list[int]]:
    """Return a copy of the encoder, and a list to which the copy appends the size of each batch of images."""
    counts: list[int] = []

    def image(batch: Tensor) -> Tensor:
        counts.append(len(batch))
        return encoder.image(batch)

    return replace(encoder, image=image), counts


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [1, 5, 11, 64])
def test_rows_are_in_order_at_any_batch_size_and_number_of_workers(
    tmp_path: Path, batch_size: int, workers: int
) -> None:
    dataset = open_dataset(fakes.captioned(tmp_path / "set", counts=(1, 2) * 5 + (1,)))
    encoder = fakes.encoder()
    images, texts = run(encoder, dataset, ["images", "captions"], tmp_path / "c", batch_size, workers).values()
    one_by_one = [encoder.image(encoder.preprocess(image)[None]) for image in dataset.images("all")]
    torch.testing.assert_close(images, torch.cat(one_by_one))
    captions = dataset.texts("all", "captions")
    torch.testing.assert_close(texts, torch.cat([encoder.text(encoder.tokenize([c])) for c in captions]))


def test_repeated_requests_are_extracted_once_and_cached(tmp_path: Path) -> None:
    dataset = open_dataset(fakes.captioned(tmp_path / "set"))
    encoder, counts = counting(fakes.encoder())
    first = run(encoder, dataset, ["images", "images"], tmp_path / "features")
    second = run(encoder, dataset, ["images"], tmp_path / "features")
    assert counts == [4]
    assert torch.equal(*(next(iter(found.values())) for found in (first, second)))


def test_variants_of_a_view_share_one_pass_over_the_images(tmp_path: Path) -> None:
    dataset = open_dataset(fakes.captioned(tmp_path / "set"))
    plain, decoded = fakes.encoder(), []

    def preprocess(image: Image) -> Tensor:
        decoded.append(image.size)
        return plain.preprocess(image)

    variants = {"twice": lambda batch: 2 * plain.image(batch), "half": lambda batch: plain.image(batch) / 2}
    encoder = replace(plain, preprocess=preprocess, image_variants=variants)
    whole, twice, half = (FeatureRequest(dataset.name, "all", "images", variant) for variant in ("", "twice", "half"))

    loading = Loading(3, 0, "cpu")

    def found(*requests: FeatureRequest) -> Features:
        return extract(encoder, {dataset.name: dataset}, requests, tmp_path / "features", loading)

    first = found(whole, twice)
    assert len(decoded) == 4
    torch.testing.assert_close(first[twice], 2 * first[whole])
    forget()
    second = found(whole, twice, half)
    assert len(decoded) == 8, "the 4 images must be decoded once more, for `half`"
    torch.testing.assert_close(second[half], first[whole] / 2)
    assert torch.equal(second[twice], first[twice])


def test_split_view_content_and_provenance_change_the_cache_key(tmp_path: Path) -> None:
    dataset = open_dataset(fakes.labelled(tmp_path / "a", train=6))
    more = open_dataset(fakes.labelled(tmp_path / "b", train=6, classes=4))
    encoder = fakes.encoder()
    requests = [(dataset, "test", "images"), (dataset, "train", "images"), (dataset, "test", "prompts")]
    keys = {cache_key(encoder, d, FeatureRequest(d.name, s, v)) for d, s, v in requests}  # type: ignore[arg-type]
    keys.add(cache_key(encoder, more, FeatureRequest(more.name, "test", "prompts")))
    for field in encoder.provenance:
        other = replace(encoder, provenance=encoder.provenance | {field: "other"})
        keys.add(cache_key(other, dataset, FeatureRequest(dataset.name, "test", "images")))
    assert len(keys) == 4 + len(encoder.provenance)


def test_a_truncated_cache_file_is_replaced(tmp_path: Path) -> None:
    dataset = open_dataset(fakes.captioned(tmp_path / "set"))
    before = run(fakes.encoder(), dataset, ["images"], tmp_path / "features")
    (file,) = (tmp_path / "features").iterdir()
    file.write_bytes(file.read_bytes()[:50])
    after = run(fakes.encoder(), dataset, ["images"], tmp_path / "features")
    assert torch.equal(*(next(iter(found.values())) for found in (before, after)))


def test_the_least_recently_used_embeddings_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, cache = open_dataset(fakes.captioned(tmp_path / "set")), tmp_path / "features"
    first, second, third = (replace(fakes.encoder(), provenance={"checkpoint": name}) for name in "abc")
    run(first, dataset, ["images"], cache)
    (file,) = cache.iterdir()
    run(second, dataset, ["images"], cache)
    os.utime(file, (0, 0))
    run(first, dataset, ["images"], cache)  # uses the file again: the embeddings of `second` are now the oldest
    monkeypatch.setenv("CLIPX_FEATURES_GB", f"{2.5 * file.stat().st_size / 1e9:.9f}")
    run(third, dataset, ["images"], cache)
    assert len(list(cache.iterdir())) == 2 and file in cache.iterdir()
    monkeypatch.setenv("CLIPX_FEATURES_GB", "many")
    with pytest.raises(UserError, match="CLIPX_FEATURES_GB=many"):
        run(replace(fakes.encoder(), provenance={"checkpoint": "d"}), dataset, ["images"], cache)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corrupt_image_raises_a_one_line_error_with_its_name(tmp_path: Path, workers: int) -> None:
    good = {"txt": b"a", "png": fakes.picture(0)}
    fakes.shard(tmp_path / "s" / "0.tar", [good, good, good | {"png": fakes.picture(0)[:90]}, good])
    dataset = open_dataset(f"captions:{tmp_path / 's'}")
    with pytest.raises(UserError, match="s00002") as caught:
        run(fakes.encoder(), dataset, ["images"], tmp_path / "features", workers=workers)
    assert "\n" not in str(caught.value)


def test_nan_embeddings_name_the_model_and_the_data(tmp_path: Path) -> None:
    dataset = open_dataset(fakes.captioned(tmp_path / "set"))

    def image(batch: Tensor) -> Tensor:
        return torch.full((len(batch), 3), torch.nan)

    with pytest.raises(UserError, match=r"fake gives NaN .* 4 of 4 images of captions:.*set"):
        run(replace(fakes.encoder(), image=image), dataset, ["images"], tmp_path / "features")
    assert not (tmp_path / "features").exists()


def test_a_bug_in_preprocessing_is_not_reported_as_a_mistake_of_the_user(tmp_path: Path) -> None:
    dataset = open_dataset(fakes.captioned(tmp_path / "set"))

    def preprocess(image: Image) -> Tensor:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run(replace(fakes.encoder(), preprocess=preprocess), dataset, ["images"], tmp_path / "features")
