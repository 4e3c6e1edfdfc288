"""Embeddings are extracted once, cached by content, and equal for any batch size; the cache of inputs is bounded."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from PIL.Image import Image
from safetensors.torch import load_file
from torch import Tensor

from clipx.errors import UserError
from evaluation.datasets.kinds import AnyDataset
from evaluation.datasets.opening import open_dataset
from evaluation.embedding import features
from evaluation.embedding.features import Loading, cache_key, cached_inputs, extract
from evaluation.types import Encoder, FeatureRequest, Features
from tests.helpers import fakes
from tests.helpers.layout_faults import forbid


def run(
    encoder: Encoder, dataset: AnyDataset, views: list[str], cache: Path, batch_size: int = 5, workers: int = 0
) -> Features:
    split = dataset.splits[0]
    requests = [FeatureRequest(dataset.name, split, view) for view in views]  # type: ignore[arg-type]
    return extract(encoder, {dataset.name: dataset}, requests, Loading(batch_size, workers, "cpu", cache))


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (5, 2)])
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


def test_variants_of_a_view_share_one_pass_over_the_images(tmp_path: Path) -> None:
    dataset = open_dataset(fakes.captioned(tmp_path / "set"))
    plain = fakes.encoder()
    preprocess = MagicMock(wraps=plain.preprocess)
    variants = {"twice": lambda batch: 2 * plain.image(batch), "half": lambda batch: plain.image(batch) / 2}
    encoder = replace(plain, preprocess=preprocess, image_variants=variants)
    whole, twice, half = (FeatureRequest(dataset.name, "all", "images", variant) for variant in ("", "twice", "half"))

    loading = Loading(3, 0, "cpu", tmp_path / "features")

    def found(*requests: FeatureRequest) -> Features:
        return extract(encoder, {dataset.name: dataset}, requests, loading)

    first = found(whole, twice, whole)
    assert preprocess.call_count == 4
    torch.testing.assert_close(first[twice], 2 * first[whole])
    features._inputs.clear()
    second = found(whole, twice, half)
    assert preprocess.call_count == 8, "the 4 images must be decoded once more, for `half`"
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


@pytest.mark.parametrize("fault", ["removed", "truncated", "forbidden"])
def test_a_faulty_cache_file_is_replaced_and_one_of_another_user_is_read(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, encoder = open_dataset(fakes.captioned(tmp_path / "set")), fakes.encoder()
    before = run(encoder, dataset, ["images"], tmp_path / "features")
    (file,) = (tmp_path / "features").iterdir()

    def removed(path: Path) -> dict[str, Tensor]:  # by another process, while it is read
        path.unlink()
        return load_file(path)

    if fault == "removed":
        monkeypatch.setattr(features, "load_file", removed)
    elif fault == "truncated":
        file.write_bytes(file.read_bytes()[:50])
    else:  # only the owner may change its time
        forbid(monkeypatch, os, "utime", file.name)
        encoder = replace(encoder, image=MagicMock())
    after = run(encoder, dataset, ["images"], tmp_path / "features")
    assert torch.equal(*(next(iter(found.values())) for found in (before, after))) and file.is_file()


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
        run(replace(fakes.encoder(), image=MagicMock(side_effect=AssertionError)), dataset, ["images"], cache)


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


def batches(made: list[int], count: int = 3) -> Iterator[Tensor]:
    """Yield batches of 16 bytes, and append each batch's index to `made`."""
    for number in range(count):
        made.append(number)
        yield torch.full((4,), float(number))


def test_an_incomplete_pass_caches_nothing() -> None:
    made: list[int] = []
    next(cached_inputs("a", batches(made)))
    assert len(list(cached_inputs("a", batches(made)))) == 3 and made == [0, 0, 1, 2]


def test_large_sets_are_not_cached_and_the_least_recently_used_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "INPUT_CACHE", 100)  # bytes: room for two sets of three batches
    made: list[int] = []
    assert len(list(cached_inputs("large", batches(made, 9)))) == 9
    for key in ("a", "b", "c", "b", "c"):
        list(cached_inputs(key, batches(made)))
    assert list(features._inputs) == ["b", "c"]


@pytest.mark.parametrize("workers", [0, 2])
def test_another_model_gets_the_same_inputs_without_decoding(tmp_path: Path, workers: int) -> None:
    dataset = open_dataset(fakes.captioned(tmp_path / "set", counts=(1, 2, 1)))
    plain = fakes.encoder()
    encoder = replace(plain, provenance={"transform": "t", "tokenizer": "w"})
    requests = [FeatureRequest(dataset.name, "all", "images"), FeatureRequest(dataset.name, "all", "captions")]
    loading = Loading(2, workers, "cpu")
    expected = extract(plain, {dataset.name: dataset}, requests, loading)
    extract(encoder, {dataset.name: dataset}, requests, loading)

    def fails(image_or_texts: Image | list[str]) -> Tensor:
        raise AssertionError("decoded again")

    again = replace(encoder, preprocess=fails, tokenize=fails)
    found = extract(again, {dataset.name: dataset}, requests, loading)
    assert all(torch.equal(expected[request], found[request]) for request in requests)
    other = replace(again, provenance={"transform": "another", "tokenizer": "w"})
    with pytest.raises(AssertionError, match="decoded again"):
        extract(other, {dataset.name: dataset}, requests, Loading(2, 0, "cpu"))
