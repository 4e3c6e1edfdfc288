"""Training on features of frozen towers equals training with the towers themselves."""

import io
import json
import random
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from clipx.config.schema import ImageTowerConfig, RunConfig, TextTowerConfig
from clipx.data.loading import cache
from clipx.data.loading.features import image_features
from clipx.data.loading.loader import open_loader
from clipx.data.preprocess.images import decode
from clipx.data.preprocess.tokenizer import build_tokenizer
from clipx.data.preprocess.transforms import evaluation_transform
from clipx.data.sources.base import PairSource
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from clipx.models import clip, frozen
from clipx.models.frozen import FrozenTower, frozen_towers
from clipx.models.towers.base import Projected
from clipx.models.towers.blocks import Before
from clipx.run.folder import RunFolder
from clipx.train import Outcome, build_sampler, fit
from clipx.types import Batch
from tests.helpers.folder import add, settings, write_shards
from tests.helpers.gloo import Gloo
from tests.helpers.runs import fit_as_rank, trained, weights

BUILD = clip.build_model
BOTH: dict[str, dict[str, object]] = {"clip": {}, "nuclr": {"eta": 0.3}}  # both gradients, and state of each sample
LENGTHS = [192, pytest.param(1600, marks=pytest.mark.long)]  # samples: 6 epochs of 4 steps, and 200 steps
pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture(autouse=True)
def no_captions_of_other_tests() -> None:
    cache._captions.clear()


def run_on_features(root: Path, samples: int = 64, **data: Any) -> RunConfig:
    """Return the settings of a run of `samples` draws of 32 pairs with frozen towers of random weights."""
    if not (root / "train").exists():
        write_shards(root / "train", 32)
    config = settings(root)
    config.name = "features"
    config.train.epochs, config.train.samples = None, samples
    config.model.image = ImageTowerConfig(name="small:conv", frozen=True, head="mlp", head_width=16)
    config.model.text = TextTowerConfig(name="small:bag", frozen=True)
    config.model.embed_dim = 8
    config.data = replace(config.data, features=True, captions="random", crop_scale=[1.0, 1.0], **data)
    config.optimizer.lr = 1e-2
    config.schedule.warmup_steps = 0
    return config


def batches(config: RunConfig) -> list[Batch]:
    pairs = open_pair_source(config.data)
    model = clip.build_model(config)
    tokenizer = build_tokenizer(model.inputs)
    sampler = build_sampler(config, pairs)
    loader = open_loader(config.data, pairs, sampler, model.inputs, tokenizer, (), model.frozen_towers)
    return [batch for batch, _ in loader.batches(0, torch.device("cpu"))]


def live(config: RunConfig) -> RunConfig:
    return replace(config, name="live", data=replace(config.data, features=False))


class InBlocks(nn.Module):
    """A frozen body that computes its outputs in the blocks in which they were stored."""

    def __init__(self, outputs: dict[bytes, Tensor]) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([self.outputs[one.contiguous().numpy().tobytes()] for one in inputs])


def blocks_of(config: RunConfig) -> dict[str, InBlocks]:
    """Return live bodies that embed the distinct images, preprocessed as in evaluation, and captions in one block."""
    pairs, towers, cpu = open_pair_source(config.data), frozen_towers(config), torch.device("cpu")
    transform, tokenizer = evaluation_transform(towers["image"].inputs), build_tokenizer(towers["text"].inputs)
    images = dict.fromkeys(pairs.image(i) for i in range(len(pairs)))
    of_image = dict(zip(images, towers["image"](torch.stack([transform(decode(i)) for i in images]), cpu), strict=True))
    tokens = tokenizer([caption for i in range(len(pairs)) for caption in pairs.captions(i)])
    of_text = dict(zip((one.numpy().tobytes() for one in tokens), towers["text"](tokens, cpu), strict=True))
    pixels = {
        image.contiguous().numpy().tobytes(): of_image[pairs.image(int(i))]
        for batch in batches(live(config))
        for i, image in zip(batch.sample_id, batch.image, strict=True)
    }
    return {"image": InBlocks(pixels), "text": InBlocks(of_text)}


def with_live_towers(
    stored: RunConfig, bodies: dict[str, InBlocks], of_run: RunConfig, pretrained: bool = True
) -> clip.ClipModel:
    head = BUILD(stored, pretrained)  # draws the same initial weights
    model = BUILD(of_run, pretrained)
    model.load_state_dict(head.state_dict(), strict=False)
    model.image.body, model.text.body = bodies["image"], bodies["text"]
    return model


def fit_live_as_rank(path: str, environment: dict[str, str], stored: RunConfig, bodies: dict[str, InBlocks]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clip, "build_model", partial(with_live_towers, stored, bodies))
        fit_as_rank(path, environment)


def assert_equal_bits(run: Path, expected: Path) -> None:
    found, wanted = weights(run), weights(expected)
    assert found.keys() == wanted.keys()
    assert [name for name, tensor in wanted.items() if not torch.equal(tensor, found[name])] == []


@pytest.mark.parametrize("samples", LENGTHS)
@pytest.mark.parametrize("kind", ["heads", "point sets"])
def test_weights_are_those_of_a_run_with_live_towers_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, samples: int
) -> None:
    config = run_on_features(tmp_path, samples=samples)
    config.objective = BOTH
    if kind == "point sets":
        to_point_sets(config)
    trained(config)
    monkeypatch.setattr(clip, "build_model", partial(with_live_towers, config, blocks_of(config)))
    trained(live(config))
    assert_equal_bits(tmp_path / "runs/features/s0", tmp_path / "runs/live/s0")


@pytest.mark.parametrize("samples", LENGTHS)
def test_two_processes_have_the_weights_of_two_with_live_towers_bit_for_bit(
    tmp_path: Path, gloo: Gloo, samples: int
) -> None:
    config = run_on_features(tmp_path, samples=samples)
    config.train.processes = 2
    environment = {"CLIPX_CACHE": str(tmp_path / "cache")}
    runs = [RunFolder.create(one).path for one in (config, live(config))]
    gloo.run(2, fit_as_rank, str(runs[0]), environment)
    gloo.run(2, fit_live_as_rank, str(runs[1]), environment, config, blocks_of(config))
    assert_equal_bits(*runs)


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(tmp_path: Path, blocks: int) -> None:
    config = run_on_features(tmp_path, samples=96, views=2)
    config = with_trainable_blocks(config) if blocks else config
    config.objective = BOTH
    config.model.image.standardise = True
    config.schedule.kind = "constant"  # so that the interrupted run may be a shorter one
    again = replace(config, name="again")
    half = replace(again, train=replace(again.train, samples=48))  # ends in the middle of an epoch
    run = RunFolder.create(again).path
    assert fit(half, run) is Outcome.FINISHED
    assert fit(again, run) is Outcome.FINISHED
    assert_equal_bits(run, trained(config))


@pytest.mark.parametrize("trained_part", ["heads", "point sets", "last blocks"])
def test_two_processes_train_the_weights_of_one(tmp_path: Path, gloo: Gloo, trained_part: str) -> None:
    config = run_on_features(tmp_path, samples=64)
    config.model.image.head_dropout = 0.0  # each rank draws for its own pairs
    config.optimizer.kind, config.optimizer.lr = "sgd", 0.1  # AdamW amplifies rounding of small gradients
    if trained_part == "point sets":
        to_point_sets(config)
    elif trained_part == "last blocks":
        config = with_trainable_blocks(config)
    one = weights(trained(config))
    two = replace(config, name="two", train=replace(config.train, processes=2))
    run = RunFolder.create(two).path
    gloo.run(2, fit_as_rank, str(run), {"CLIPX_CACHE": str(tmp_path / "cache")})
    for name, tensor in weights(run).items():
        assert torch.allclose(tensor, one[name], rtol=1e-4, atol=1e-5), name


def to_point_sets(config: RunConfig) -> None:
    config.model.image = ImageTowerConfig(name="small:vit", frozen=True)
    config.model.text = TextTowerConfig(name="small:transformer", frozen=True)
    config.model.points.kernel = "imq"
    config.model.points.features_train = 16


def test_standardised_features_have_mean_0_and_deviation_1(tmp_path: Path) -> None:
    config = run_on_features(tmp_path, samples=0)
    config.model.image.standardise = config.model.text.standardise = True
    run = trained(config)
    saved = weights(run)
    model = clip.build_model(config, pretrained=False)
    model.load_state_dict(saved)
    features = torch.cat([batch.image for batch in batches(replace(config, train=replace(config.train, samples=32)))])
    scaled = cast(Projected, model.image).projection.get_submodule("0")(features)
    assert torch.allclose(scaled.mean(0), torch.zeros(scaled.shape[1]), atol=0.3)
    constant = features.std(0) < 1e-6
    assert torch.allclose(saved["image.projection.0.deviation"][constant], torch.ones(int(constant.sum())))


def test_files_of_the_current_folder_belong_to_no_tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_on_features(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = frozen._digest_file(config.model, "image")
    (tmp_path / "notes.txt").write_text("of the user")
    assert frozen._digest_file(config.model, "image") == before


def views_of(config: RunConfig) -> dict[int, set[bytes]]:
    """Return the different features that each sample had."""
    found: dict[int, set[bytes]] = {}
    for batch in batches(config):
        for sample_id, image in zip(batch.sample_id.tolist(), batch.image, strict=True):
            found.setdefault(sample_id, set()).add(image.numpy().tobytes())
    return found


def test_views_depend_on_image_and_number_and_the_seed_draws_among_them(tmp_path: Path) -> None:
    config = run_on_features(tmp_path, samples=32 * 12)
    config.data = replace(config.data, views=3, crop_scale=[0.3, 1.0], flip=True)
    first, second = views_of(config), views_of(replace(config, seed=1))
    assert all(len(first[i] | second[i]) <= 3 for i in first)
    assert sum(map(len, first.values())) > 2 * len(first)  # the epochs draw most of the three


class Files(PairSource):
    """Image files in memory."""

    fingerprint = "files"

    def __init__(self, images: list[bytes]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def where(self, sample_id: int) -> str:
        return str(sample_id)

    def image(self, sample_id: int) -> bytes:
        return self.images[sample_id]

    def captions(self, sample_id: int) -> list[str]:
        return ["a picture"]


def test_the_crop_of_a_view_depends_on_its_image_and_its_number_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_on_features(tmp_path, views=2)
    config.data.crop_scale = [0.3, 0.8]
    pixels = Image.frombytes("RGB", (32, 32), random.Random(0).randbytes(3 * 32 * 32))
    pixels.save(file := io.BytesIO(), "PNG")
    images = [file.getvalue(), file.getvalue() + b"another"]  # with equal pixels
    found = list[Tensor]()
    for order in (images, images[::-1]):
        monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / f"cache{len(found)}"))
        views = image_features(config.data, Files(order), frozen_towers(config)["image"])
        found.append(views.features.take(views.row_of.ravel()))
    first, second = (both.reshape(2, 2, -1) for both in found)
    torch.testing.assert_close(first, second.flip(0))
    assert torch.pdist(found[0]).min() > 1e-3


def test_features_of_another_tower_are_refused_at_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_on_features(tmp_path, samples=8)
    run = trained(config)
    described = frozen._describe

    def other(of_run: RunConfig, side: str) -> FrozenTower[Any]:
        return replace(described(of_run, side), digest="other")

    monkeypatch.setattr(frozen, "_describe", other)
    with pytest.raises(UserError, match="features of another image tower than model"):
        fit(replace(config, train=replace(config.train, samples=16)), run)


def test_an_image_replaced_by_another_of_equal_size_is_embedded_anew(tmp_path: Path) -> None:
    config = run_on_features(tmp_path, samples=32)
    write_pixels(tmp_path / "train", value=100)
    before = batches(config)
    write_pixels(tmp_path / "train", value=200)
    after = batches(config)
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old.sample_id, new.sample_id)
        changed = (old.image != new.image).any(dim=1)
        assert torch.equal(changed, old.sample_id == 3)


def write_pixels(folder: Path, value: int) -> None:
    """Write a shard of 32 images of equal size in bytes; `value` is the colour of image 3."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / "00000.tar", "w") as tar:
        for i in range(32):
            image = io.BytesIO()
            Image.new("RGB", (32, 32), (value, 0, 0) if i == 3 else (i, i, i)).save(image, "PNG", compress_level=0)
            add(tar, f"{i:03d}.png", image.getvalue())
            add(tar, f"{i:03d}.json", json.dumps({"captions": [f"{i} objects", f"three {i}"]}).encode())


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute, store and train in float64: no rounding of batches of different sizes hides a difference."""
    described = frozen._describe
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(frozen, "_describe", lambda *of: replace(described(*of), precision="float64"))
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def with_trainable_blocks(config: RunConfig) -> RunConfig:
    image = ImageTowerConfig(name="small:vit", frozen=True, trainable_blocks=1, head="linear")
    text = TextTowerConfig(name="small:transformer", frozen=True, trainable_blocks=1)
    config.model = replace(config.model, image=image, text=text)
    return config


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("blocks", [0, 1])
def test_in_float64_features_train_the_weights_of_live_towers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    config = run_on_features(tmp_path, samples=96)  # 12 steps
    config = with_trainable_blocks(config) if blocks else config
    config.optimizer.kind, config.optimizer.lr = "sgd", 0.1  # the fused AdamW stops at bad steps in float32 only
    trained(config)
    build = clip.build_model

    def with_the_same_weights(of_run: RunConfig, pretrained: bool = True) -> clip.ClipModel:
        stored = build(config, pretrained)
        with torch.random.fork_rng(devices=[]):  # dropout draws as in the run on features
            model = build(of_run, pretrained)
        for side, tower in stored.frozen_towers.items():
            whole, body = getattr(model, side), tower.body
            body = body.body if isinstance(body, Before) else body
            (whole.body if isinstance(whole, Projected) else whole).load_state_dict(body.state_dict())
        model.load_state_dict(stored.state_dict(), strict=False)
        return model

    monkeypatch.setattr("clipx.run.initial_weights.clip.build_model", with_the_same_weights)
    trained(live(config))
    ours, expected = weights(tmp_path / "runs/features/s0"), weights(tmp_path / "runs/live/s0")
    assert ours["image.projection.weight" if blocks else "image.projection.output.weight"].dtype == torch.float64
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-9, atol=1e-9, msg=name)
