"""A step on one process: random state, batch statistics, precision, averaged weights, and what is refused."""

import math
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.run.checkpoint import AVERAGED, TrainState, chosen_weights, load_weights
from clipx.training import gradients
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import count_memory, log_row, train_step
from clipx.types import Batch, Embeddings, Progress
from clipx.utils import rng
from clipx.utils.device import choose_device
from tests.helpers import tiny
from tests.helpers.folder import settings as mini_settings

AT = Progress(3, 9, 0, 1)
CLIP: dict[str, dict[str, object]] = {"clip": {}}


def stepped(accumulation: int, tower: str) -> TrainComponents:
    """After one step of SGD with rate 1: the weights moved by the gradient."""
    config = tiny.settings(CLIP)
    config.train.accumulation = accumulation
    config.optimizer.kind, config.optimizer.lr, config.optimizer.weight_decay = "sgd", 1.0, 0.0
    parts = tiny.parts_of(config, tower)
    train_step(parts, next(tiny.batches(config, 1)), AT)
    return parts


def by_hand(micro_batches: int, tower: str) -> nn.Module:
    """The same step in one graph over micro-batches, each with the draws of its number."""
    config = tiny.settings(CLIP)
    parts, batch = tiny.parts_of(config, tower), next(tiny.batches(config, 1))
    parts.model.train()
    outputs = []
    for k, (image, text) in enumerate(
        zip(batch.image.chunk(micro_batches), batch.text.chunk(micro_batches), strict=True)
    ):
        torch.manual_seed(rng.derive_seed(config.seed, AT.step, 0, k, gradients.STREAM))
        outputs.append(parts.model(image, text, AT))
    image, text = (torch.cat([o[i] for o in outputs]) for i in (0, 1))
    embeddings = Embeddings(image, text, outputs[0][2], batch.sample_id, batch.label)
    parts.objective(embeddings, {}, AT).total.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in parts.model.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad)
    return parts.model


@pytest.mark.parametrize("rows", [3, 5])
def test_samples_that_are_left_out_do_not_upset_micro_batches(rows: int) -> None:
    """With 3, fewer than the micro-batches; with 5, not a multiple of them."""
    found = []
    for accumulation in (1, 4):
        config = tiny.settings(CLIP)
        config.train.accumulation = accumulation
        parts, batch = tiny.parts_of(config), next(tiny.batches(config, 1))
        kept = (getattr(batch, field.name)[:rows] for field in fields(Batch))
        train_step(parts, Batch(*kept), AT)
        found.append(parts.model.state_dict())
    for name, expected in found[0].items():
        torch.testing.assert_close(found[1][name], expected, msg=tiny.about(name))


@pytest.mark.parametrize("tower", ["dropout", "resnet"])
@pytest.mark.parametrize("micro_batches", [1, 2, 4])
def test_both_passes_see_the_same_masks_and_count_batch_statistics_once(tower: str, micro_batches: int) -> None:
    found, expected = stepped(micro_batches, tower).model, by_hand(micro_batches, tower)
    for (name, a), b in zip(found.state_dict().items(), expected.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=tiny.about(name))
    counted = {int(v) for k, v in found.state_dict().items() if k.endswith("num_batches_tracked")}
    assert counted == ({micro_batches} if tower == "resnet" else set())


def test_masks_differ_between_micro_batches_and_steps() -> None:
    config = tiny.settings(CLIP)
    parts, batch = tiny.parts_of(config, "dropout"), next(tiny.batches(config, 1))
    parts.model.train()

    def image(step: int, number: int) -> Tensor:
        return gradients._embed(parts, batch.image, batch.text, Progress(step, 9, 0, 1), number)[0]

    assert torch.equal(image(0, 0), image(0, 0))
    assert not torch.equal(image(0, 0), image(0, 1))
    assert not torch.equal(image(0, 0), image(1, 0))


@pytest.mark.parametrize("frozen", ["image", "text", "both"])
def test_micro_batches_of_frozen_towers(frozen: str) -> None:
    weights = []
    for accumulation in (1, 2):
        config = tiny.settings(CLIP)
        config.train.accumulation = accumulation
        parts = tiny.parts_of(config)
        for tower in ("image", "text") if frozen == "both" else (frozen,):
            getattr(parts.model, tower).requires_grad_(False)
        weights.append(tiny.train(parts))
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_half_precision_is_near_single(precision: str, accumulation: int) -> None:
    moved, norms = {}, []
    for chosen in ("fp32", precision):
        config = tiny.settings(CLIP)
        config.train.precision, config.train.accumulation, config.train.grad_clip = chosen, accumulation, 0.1
        config.optimizer.kind, config.optimizer.lr = "sgd", 0.5
        parts = tiny.parts_of(config)
        before = nn.utils.parameters_to_vector(parts.model.parameters()).detach().clone()
        batch = next(tiny.batches(config, 1))
        row = log_row(parts, train_step(parts, batch, AT), AT)
        while not math.isfinite(row["grad_norm"]):  # the scaler starts too high, and backs off
            row = log_row(parts, train_step(parts, batch, AT), AT)
        moved[chosen] = nn.utils.parameters_to_vector(parts.model.parameters()).detach() - before
        norms.append(row["grad_norm"])
        assert ("grad_scale" in row) == (chosen == "fp16")
    assert norms[0] > 0.1  # clipped, and after the scaler's factor was taken out
    assert norms[1] == pytest.approx(norms[0], rel=0.05)
    assert moved[precision].isfinite().all()
    assert (moved[precision] - moved["fp32"]).norm() < 0.1 * moved["fp32"].norm()


def flags() -> tuple[bool, bool]:
    """Whether products and convolutions in float32 may be rounded."""
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_only_towers_are_rounded_to_tf32_and_only_on_request(precision: str, accumulation: int) -> None:
    config = tiny.settings(CLIP)
    config.train.precision, config.train.accumulation = precision, accumulation
    parts = tiny.parts_of(config)
    seen: dict[str, set[tuple[bool, bool]]] = {"forward": set(), "backward": set(), "loss": set(), "loss's": set()}
    tower, plain, before = parts.model.image, parts.mix, flags()
    tower.register_forward_hook(lambda *_: seen["forward"].add(flags()))
    next(tower.parameters()).register_hook(lambda _: seen["backward"].add(flags()))  # type: ignore[no-untyped-call]

    def mix(embeddings: Embeddings, step: int) -> Embeddings:
        seen["loss"].add(flags())
        embeddings.image.register_hook(lambda _: seen["loss's"].add(flags()))  # type: ignore[no-untyped-call]
        return plain(embeddings, step)

    parts.mix = mix
    train_step(parts, next(tiny.batches(config, 1)), AT)
    towers, objective = {(precision == "tf32",) * 2}, {(False, False)}
    assert seen == {"forward": towers, "backward": towers, "loss": objective, "loss's": objective}
    assert flags() == before


def test_convolutions_on_a_gpu_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    assert choose_device("cpu").type == "cpu" and not torch.backends.cudnn.benchmark
    assert choose_device("auto").type == "cuda" and torch.backends.cudnn.benchmark


def test_a_device_that_is_not_there_is_named_by_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"^train.device=cuda, but"):
        choose_device("cuda")
    with pytest.raises(UserError, match=r"^device=tpu is not known"):
        choose_device("tpu", "device")


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_picture_without_numbers_leaves_running_statistics_as_they_were(accumulation: int) -> None:
    config = tiny.settings(CLIP)
    config.train.accumulation, config.train.ema = accumulation, 0.5
    parts, first, spoilt, last = tiny.parts_of(config, "resnet"), *tiny.batches(config, 3)
    train_step(parts, first, AT)
    before = {k: v.clone() for k, v in parts.model.state_dict().items()}
    spoilt.image[3] = float("nan")
    train_step(parts, spoilt, AT)
    assert parts.bad_steps == 1
    for name, value in parts.model.state_dict().items():
        assert torch.equal(value, before[name]), name
    train_step(parts, last, AT)
    assert parts.bad_steps == 0
    assert not torch.equal(parts.model.state_dict()["image.stem.1.running_mean"], before["image.stem.1.running_mean"])
    assert parts.state.average and all(value.isfinite().all() for value in parts.state.average.weights.values())


def spoil(parts: TrainComponents, bad_loss: bool) -> None:
    """No finite gradient in a step, with a finite loss or without."""
    factor = float("nan") if bad_loss else 1e38
    plain = parts.mix
    parts.mix = lambda e, step: Embeddings(plain(e, step).image * factor, *list(vars(e).values())[1:])


def test_a_scaler_that_backs_off_is_no_divergence_until_it_has_nothing_left() -> None:
    config = tiny.settings(CLIP)
    config.train.precision = "fp16"
    parts, batch = tiny.parts_of(config), next(tiny.batches(config, 1))
    before = {k: v.clone() for k, v in parts.model.state_dict().items()}
    first = next(parts.model.parameters())
    first.register_hook(lambda gradient: gradient * float("inf"))  # type: ignore[no-untyped-call]
    scales = []
    for step in range(19):
        scales.append(parts.state.scaler.get_scale())
        train_step(parts, batch, Progress(step, 19, 0, 1))
    assert scales[:3] == [2.0**16, 2.0**15, 2.0**14]
    assert parts.bad_steps == sum(scale <= 1 for scale in scales) == 3
    assert all(torch.equal(before[k], v) for k, v in parts.model.state_dict().items())


def test_a_loss_that_is_not_finite_is_a_bad_step_in_fp16_too() -> None:
    config = tiny.settings(CLIP)
    config.train.precision = "fp16"
    parts, batch = tiny.parts_of(config), next(tiny.batches(config, 1))
    spoil(parts, bad_loss=True)
    train_step(parts, batch, AT)
    assert parts.bad_steps == 1


def state_of(config: RunConfig) -> TrainState:
    return tiny.parts_of(config).state


def test_scaler_and_averaged_weights_come_back_from_a_checkpoint(tmp_path: Path) -> None:
    config = tiny.settings(CLIP)
    config.train.precision, config.train.ema = "fp16", 0.9
    parts = tiny.parts_of(config)
    tiny.train(parts, 3)
    parts.state.scaler.update(512.0)
    path = parts.state.save(tmp_path)
    loaded = state_of(config)
    loaded.load(path)
    assert loaded.scaler.state_dict() == parts.state.scaler.state_dict()
    assert loaded.average and parts.state.average
    for name, value in parts.state.average.weights.items():
        assert torch.equal(loaded.average.weights[name], value), name
    other = tiny.parts_of(config).model
    load_weights(other, path, chosen_weights(path, averaged=True))
    assert torch.equal(other.state_dict()["image.1.weight"], parts.state.average.weights["image.1.weight"])
    (path / AVERAGED).unlink()
    with pytest.raises(UserError, match=r"ema=true: .* holds no averaged weights.*train.ema"):
        chosen_weights(path, averaged=True)


def test_averaged_weights_follow_their_formula() -> None:
    config = tiny.settings(CLIP)
    config.train.ema = 0.75
    parts = tiny.parts_of(config, "resnet")
    expected = {k: v.double() for k, v in parts.model.state_dict().items()}
    for step, batch in enumerate(tiny.batches(config, 4)):
        train_step(parts, batch, Progress(step, 4, 0, 1))
        for name, w in parts.model.state_dict().items():
            expected[name] = 0.75 * expected[name] + 0.25 * w if w.is_floating_point() else w.double()
    assert parts.state.average
    for name, value in parts.state.average.weights.items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-7)
        assert not torch.equal(value, parts.model.state_dict()[name]) or not value.is_floating_point(), name


def test_a_batch_that_cannot_be_split_is_named() -> None:
    config = tiny.settings(CLIP)
    config.train.accumulation = 3
    with pytest.raises(UserError, match=r"train.batch_size=8 must be divisible by 3 .*train.accumulation=3"):
        tiny.parts_of(config)


def mini(image: str, text: str) -> tuple[TrainComponents, Batch]:
    """A step of real towers with checkpointing, and a batch of two pairs."""
    config = mini_settings(Path())
    config.model.image.name, config.model.text.name, config.train.batch_size = image, text, 2
    config.optimizer.kind = "sgd"
    parts = build_components(config, torch.device("cpu"), 2, "x")
    tokens = torch.randint(1, 1000, (2, parts.model.inputs.context_length))
    return parts, Batch(torch.arange(2), torch.randn(2, 3, 48, 48), tokens, torch.zeros(2).long())


@pytest.mark.parametrize("image", ["open_clip:mini-vit-48", "open_clip:mini-48"])
def test_checkpointed_towers_end_in_the_same_weights_and_statistics(image: str) -> None:
    plain, batch = mini(image, "open_clip:mini-vit-48")
    config = plain.config
    train_step(plain, batch, AT)
    expected = {k: v.clone() for k, v in plain.model.state_dict().items()}
    config.train.grad_checkpointing = True
    again = build_components(config, torch.device("cpu"), 2, "x")
    train_step(again, batch, AT)
    for name, value in again.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6, msg=tiny.about(name))


def test_a_tower_without_checkpointing_is_refused() -> None:
    config = mini_settings(Path())
    config.train.grad_checkpointing = True
    config.model.image.name = "open_clip:RN50"  # open_clip's own switch does nothing here, without a word
    config.model.embed_dim = None
    config.model.text.name = "open_clip:RN50"
    config.model.image.size, config.model.text.context_length = 64, 8
    with pytest.raises(UserError, match=r"model.image.name=open_clip:RN50 does not support gradient checkpointing"):
        clip.build_model(config)


@pytest.mark.slow
def test_compiled_towers_keep_their_names_and_results() -> None:
    if not compiler():
        pytest.skip("torch.compile needs a C++ compiler")
    plain, batch = mini("open_clip:mini-vit-48", "open_clip:mini-vit-48")
    train_step(plain, batch, AT)
    plain.config.train.compile = True
    compiled = build_components(plain.config, torch.device("cpu"), 2, "x")
    train_step(compiled, batch, AT)
    expected = plain.model.state_dict()
    assert list(compiled.model.state_dict()) == list(expected)
    for name, value in compiled.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-5)


def compiler() -> bool:
    import shutil

    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))


def test_the_log_says_what_a_step_was_spent_on() -> None:
    for accumulation in (1, 2):
        config = tiny.settings(CLIP)
        config.train.accumulation = accumulation
        parts = tiny.parts_of(config)
        tiny.train(parts, 2)
        found = parts.laps.read()
        assert list(found) == ["forward", "loss", "backward", "optimizer"]
        assert all(0 < seconds < math.inf for seconds in found.values())
        assert parts.laps.read() == {}


def test_the_log_of_a_gpu_tells_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tiny.parts_of(tiny.settings(CLIP))
    row = train_step(parts, next(tiny.batches(parts.config, 1)), AT)
    assert "memory_gb" not in log_row(parts, row, AT)
    peak = {"cuda": 7_000_000_000}  # of an earlier run of the process
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak[device.type])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peak.update({device.type: 2_500_000_000}))
    parts.device = torch.device("cuda")
    count_memory(parts.device)
    assert log_row(parts, row, AT)["memory_gb"] == 2.5
