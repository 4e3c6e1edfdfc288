"""A training step on one process: random draws, batch statistics, precision, averaged weights, refused settings."""

import gc
import math
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock, patch

import pytest
import torch
from torch import nn

from clipx import objectives
from clipx.errors import UserError
from clipx.models import clip
from clipx.objectives.base import Objective, Rows, Term, TermOutput
from clipx.run.checkpoint import AVERAGED, chosen_weights, load_weights
from clipx.training import step
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import log_row, reset_peak_memory, train_step
from clipx.types import Batch, Embeddings, Progress
from clipx.utils import rng
from clipx.utils.device import choose_device, missing_compiler
from tests.helpers import tiny
from tests.helpers.folder import settings as mini_settings

AT = Progress(3, 9, 0, 1)
CLIP: dict[str, dict[str, object]] = {"clip": {}}
MICRO_BATCHES, EVERY = 2000, 100  # of the test of memory; EVERY: steps between measurements


def stepped(accumulation: int, tower: str) -> nn.Module:
    """Return the model after one step of SGD with lr 1, which moves the weights by the gradient."""
    config = tiny.settings(CLIP)
    config.train.accumulation = accumulation
    config.optimizer.kind, config.optimizer.lr, config.optimizer.weight_decay = "sgd", 1.0, 0.0
    components = tiny.components(config, tower)
    train_step(components, next(tiny.batches(config, 1)), AT)
    return components.state.model


def by_hand(micro_batches: int, tower: str) -> nn.Module:
    """Return the model after the same step, computed in one graph over micro-batches with their own random seeds."""
    config = tiny.settings(CLIP)
    components, batch = tiny.components(config, tower), next(tiny.batches(config, 1))
    components.state.model.train()
    outputs = []
    for k, (image, text) in enumerate(
        zip(batch.image.chunk(micro_batches), batch.text.chunk(micro_batches), strict=True)
    ):
        torch.manual_seed(rng.derive_seed(config.seed, AT.step, 0, k, step.STREAM))
        outputs.append(components.state.model(image, text, AT))
    image, text = (torch.cat([o[i] for o in outputs]) for i in (0, 1))
    embeddings = Embeddings(image, text, outputs[0][2], batch.sample_id, batch.label)
    components.state.objective(embeddings, {}, AT).total.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in components.state.model.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad)
    return components.state.model


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_uses_its_learning_rate_and_gives_the_objective_all_fields_of_its_batch(accumulation: int) -> None:
    config = tiny.settings({"negclip": {}, "distill": {}})
    config.model.teacher, config.train.accumulation, config.schedule.kind = "tiny", accumulation, "cosine"
    components, batch = tiny.components(config), next(tiny.batches(config, 1))
    batch = replace(batch, group=batch.label + 5)
    model, teacher = components.state.model, components.teacher
    assert batch.negative_text is not None and teacher is not None
    with torch.no_grad():
        expected = {
            "image": model.encode_image(batch.image),
            "text": model.encode_text(batch.text),
            "negative_text": model.encode_text(batch.negative_text),
            "scale": model.temperature(AT),
        }
    of_teacher = {"image": teacher.image(batch.image), "text": teacher.text(batch.text), "scale": teacher.scale}
    components.mix = mix = MagicMock(wraps=components.mix)
    with patch.object(Objective, "__call__", autospec=True, side_effect=Objective.__call__) as called:
        train_step(components, batch, AT)
    found: Embeddings = called.call_args.args[1]
    assert mix.call_args.args[1] == AT.step
    rates = {group["lr"] for group in components.state.optimizer.param_groups}
    assert rates == {components.learning_rate(AT)} != {config.optimizer.lr}
    for field in ("sample_id", "label", "group"):
        assert torch.equal(getattr(found, field), getattr(batch, field)), field
    for given, values in ((found, expected), (found.teacher, of_teacher)):
        for name, value in values.items():
            torch.testing.assert_close(getattr(given, name), value, msg=tiny.about(name))


def test_the_temperature_stays_within_its_bounds() -> None:
    config = tiny.settings(CLIP)
    config.temperature.min_scale = config.temperature.max_scale = 1 / config.temperature.tau
    components = tiny.components(config)
    before = components.state.model.get_parameter("temperature.nu").clone()
    train_step(components, next(tiny.batches(config, 1)), AT)
    assert torch.equal(components.state.model.get_parameter("temperature.nu"), before)


@pytest.mark.parametrize(("frozen", "samples"), [((), 3), (("text",), 8), (("image", "text"), 8)])
def test_micro_batches_give_the_same_weights_also_of_few_samples_and_with_frozen_towers(
    frozen: tuple[str, ...], samples: int
) -> None:
    found = []
    for accumulation in (1, 4):
        config = tiny.settings(CLIP)
        config.train.accumulation = accumulation
        components = tiny.components(config)
        for tower in frozen:
            getattr(components.state.model, tower).requires_grad_(False)
        for at, batch in enumerate(tiny.batches(config, 5)):
            kept = {name: value[:samples] for name, value in vars(batch).items() if value is not None}
            train_step(components, Batch(**kept), Progress(at, 5, 0, 1))
        found.append(components.state.model.state_dict())
    for name, expected in found[0].items():
        torch.testing.assert_close(found[1][name], expected, rtol=1e-4, atol=2e-6, msg=tiny.about(name))


@pytest.mark.parametrize("tower", ["dropout", "resnet"])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_both_passes_draw_the_same_masks_and_update_batch_statistics_once(tower: str, micro_batches: int) -> None:
    found, expected = stepped(micro_batches, tower), by_hand(micro_batches, tower)
    for (name, a), b in zip(found.state_dict().items(), expected.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=tiny.about(name))
    counted = {int(v) for k, v in found.state_dict().items() if k.endswith("num_batches_tracked")}
    assert counted == ({micro_batches} if tower == "resnet" else set())


def test_each_rank_draws_its_own_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    components, batch = tiny.components(tiny.settings(CLIP), "dropout"), next(tiny.batches(tiny.settings(CLIP), 1))
    components.state.model.train()
    embedded = []
    for rank in (0, 0, 1):
        monkeypatch.setattr("clipx.distributed.rank", lambda rank=rank: rank)
        embedded.append(step._embed(components, batch.image, batch.text, AT, 0)[0])
    assert torch.equal(embedded[0], embedded[1])
    assert not torch.isclose(embedded[0], embedded[2]).all(dim=1).any()


class ImageOnly(Term):
    """A term that does not use the texts."""

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        return embeddings.image.sum(), {}


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_term_of_one_modality_gives_the_other_tower_a_gradient_of_zero(
    accumulation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(objectives.TERMS, "image_only", ImageOnly)
    config = tiny.settings({"image_only": {}})
    config.train.accumulation = accumulation
    components = tiny.components(config)
    train_step(components, next(tiny.batches(config, 1)), AT)
    has_gradient = {
        tower: [p.grad is not None and bool(p.grad.any()) for p in getattr(components.state.model, tower).parameters()]
        for tower in ("image", "text")
    }
    assert all(has_gradient["image"]) and not any(has_gradient["text"])
    assert all(p.grad is not None for p in components.state.model.text.parameters())  # DDP waits for each of them


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_half_precision_steps_are_close_to_single_precision_steps(precision: str, accumulation: int) -> None:
    moved, norms = {}, []
    for chosen in ("fp32", precision):
        config = tiny.settings(CLIP)
        config.train.precision, config.train.accumulation, config.train.grad_clip = chosen, accumulation, 0.1
        config.optimizer.kind, config.optimizer.lr = "sgd", 0.5
        components = tiny.components(config)
        before = nn.utils.parameters_to_vector(components.state.model.parameters()).detach().clone()
        batch = next(tiny.batches(config, 1))
        row = log_row(components, train_step(components, batch, AT), AT)
        while not math.isfinite(row["grad_norm"]):  # gradients overflow until the scaler's factor is small enough
            row = log_row(components, train_step(components, batch, AT), AT)
        moved[chosen] = nn.utils.parameters_to_vector(components.state.model.parameters()).detach() - before
        norms.append(row["grad_norm"])
        assert ("grad_scale" in row) == (chosen == "fp16")
    assert norms[0] > 0.1  # above grad_clip, so gradients were clipped
    assert norms[1] == pytest.approx(norms[0], rel=0.05) and norms[1] != norms[0]  # equal: it had no effect
    assert moved[precision].isfinite().all()
    assert (moved[precision] - moved["fp32"]).norm() < 0.1 * moved["fp32"].norm()


def flags() -> tuple[bool, bool]:
    """Return two flags: float32 products may use TF32, and float32 convolutions may use TF32."""
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_tf32_applies_to_the_towers_only_and_only_if_set(precision: str, accumulation: int) -> None:
    config = tiny.settings(CLIP)
    config.train.precision, config.train.accumulation = precision, accumulation
    components = tiny.components(config)
    phases = ("forward", "backward", "loss", "loss_backward")
    seen: dict[str, set[tuple[bool, bool]]] = {phase: set() for phase in phases}
    tower, plain, before = components.state.model.image, components.mix, flags()
    tower.register_forward_hook(lambda *_: seen["forward"].add(flags()))
    next(tower.parameters()).register_hook(lambda _: seen["backward"].add(flags()))  # type: ignore[no-untyped-call]

    def mix(embeddings: Embeddings, step: int) -> Embeddings:
        seen["loss"].add(flags())
        embeddings.image.register_hook(lambda _: seen["loss_backward"].add(flags()))  # type: ignore[no-untyped-call]
        return plain(embeddings, step)

    components.mix = mix
    train_step(components, next(tiny.batches(config, 1)), AT)
    towers, objective = {(precision == "tf32",) * 2}, {(False, False)}
    assert seen == {"forward": towers, "backward": towers, "loss": objective, "loss_backward": objective}
    assert flags() == before


def test_cudnn_benchmarks_convolutions_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    assert choose_device("cpu").type == "cpu" and not torch.backends.cudnn.benchmark
    assert choose_device("auto").type == "cuda" and torch.backends.cudnn.benchmark


def test_a_missing_or_unknown_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"^train.device=cuda, but"):
        choose_device("cuda")
    with pytest.raises(UserError, match=r"^device=tpu is not known"):
        choose_device("tpu", "device")


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_nan_image_does_not_change_running_statistics(accumulation: int) -> None:
    config = tiny.settings(CLIP)
    config.train.accumulation, config.train.ema = accumulation, 0.5
    components, first, nan_batch, last = tiny.components(config, "resnet"), *tiny.batches(config, 3)
    train_step(components, first, AT)
    before = {k: v.clone() for k, v in components.state.model.state_dict().items()}
    nan_batch.image[3] = float("nan")
    train_step(components, nan_batch, AT)
    assert components.bad_steps == 1
    for name, value in components.state.model.state_dict().items():
        assert torch.equal(value, before[name]), name
    train_step(components, last, AT)
    assert components.bad_steps == 0
    mean = "image.stem.1.running_mean"
    assert not torch.equal(components.state.model.state_dict()[mean], before[mean])
    assert components.state.ema
    assert all(value.isfinite().all() for value in components.state.ema.module.state_dict().values())


def test_fp16_overflows_count_as_bad_steps_only_at_scales_up_to_1() -> None:
    config = tiny.settings(CLIP)
    config.train.precision = "fp16"
    components, batch = tiny.components(config), next(tiny.batches(config, 1))
    before = {k: v.clone() for k, v in components.state.model.state_dict().items()}
    first = next(components.state.model.parameters())
    first.register_hook(lambda gradient: gradient * float("inf"))  # type: ignore[no-untyped-call]
    scales = []
    for at in range(19):  # the scale halves from 2^16 to 2^-2
        scales.append(components.state.scaler.get_scale())
        train_step(components, batch, Progress(at, 19, 0, 1))
    assert scales[:3] == [2.0**16, 2.0**15, 2.0**14]
    assert components.bad_steps == sum(scale <= 1 for scale in scales) == 3
    assert all(torch.equal(before[k], v) for k, v in components.state.model.state_dict().items())


def test_a_nan_loss_is_a_bad_step_in_fp16_too() -> None:
    config = tiny.settings(CLIP)
    config.train.precision = "fp16"
    components, batch = tiny.components(config), next(tiny.batches(config, 1))
    components.mix = lambda embeddings, step: replace(embeddings, image=embeddings.image * float("nan"))
    train_step(components, batch, AT)
    assert components.bad_steps == 1


def test_scaler_and_averaged_weights_are_restored_from_a_checkpoint(tmp_path: Path) -> None:
    config = tiny.settings(CLIP)
    config.train.precision, config.train.ema = "fp16", 0.9
    components = tiny.components(config)
    tiny.train(components, 3)
    components.state.scaler.update(512.0)
    path = components.state.save(tmp_path)
    loaded = tiny.components(config).state
    loaded.load(path)
    assert loaded.scaler.state_dict() == components.state.scaler.state_dict()
    assert loaded.ema and components.state.ema
    for name, value in components.state.ema.module.state_dict().items():
        assert torch.equal(loaded.ema.module.state_dict()[name], value), name
    other = tiny.components(config).state.model
    load_weights(other, path, chosen_weights(path, averaged=True))
    assert torch.equal(other.state_dict()["image.1.weight"], components.state.ema.module.state_dict()["image.1.weight"])
    (path / AVERAGED).unlink()
    with pytest.raises(UserError, match=r"ema=true: .* holds no averaged weights.*train.ema"):
        chosen_weights(path, averaged=True)


def test_averaged_weights_decay_towards_the_current_weights_at_the_set_rate() -> None:
    config = tiny.settings(CLIP)
    config.train.ema = 0.75
    components = tiny.components(config, "resnet")
    expected = {k: v.double() for k, v in components.state.model.state_dict().items()}
    for at, batch in enumerate(tiny.batches(config, 4)):
        train_step(components, batch, Progress(at, 4, 0, 1))
        for name, w in components.state.model.state_dict().items():
            expected[name] = 0.75 * expected[name] + 0.25 * w if w.is_floating_point() else w.double()
    assert components.state.ema
    for name, value in components.state.ema.module.state_dict().items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-7)
        assert not torch.equal(value, components.state.model.state_dict()[name]) or not value.is_floating_point(), name


def small_run(image: str, text: str) -> tuple[TrainComponents, Batch]:
    """Return a run with small real towers and a batch of two pairs."""
    config = mini_settings(Path())
    config.model.image.name, config.model.text.name, config.train.batch_size = image, text, 2
    config.optimizer.kind = "sgd"
    components = build_components(config, torch.device("cpu"), 2, "x")
    tokens = torch.randint(1, 1000, (2, components.state.model.inputs.context_length))
    return components, Batch(torch.arange(2), torch.randn(2, 3, 48, 48), tokens, torch.zeros(2).long())


@pytest.mark.parametrize("image", ["open_clip:mini-vit-48", "open_clip:mini-48"])
def test_grad_checkpointing_gives_the_same_weights_and_batch_statistics(image: str) -> None:
    plain, batch = small_run(image, "open_clip:mini-vit-48")
    config = plain.config
    train_step(plain, batch, AT)
    expected = {k: v.clone() for k, v in plain.state.model.state_dict().items()}
    config.train.grad_checkpointing = True
    again = build_components(config, torch.device("cpu"), 2, "x")
    train_step(again, batch, AT)
    for name, value in again.state.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6, msg=tiny.about(name))


def test_a_tower_without_grad_checkpointing_is_refused() -> None:
    config = mini_settings(Path())
    config.train.grad_checkpointing = True
    config.model.image.name = "open_clip:RN50"  # for ResNets, open_clip's own switch has no effect
    config.model.embed_dim = None
    config.model.text.name = "open_clip:RN50"
    config.model.image.size, config.model.text.context_length = 64, 8
    message = r"model.image.name=open_clip:RN50 does not support gradient checkpointing"
    with torch.device("meta"), pytest.raises(UserError, match=message):
        clip.build_model(config, pretrained=False)


def test_compiling_without_a_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None if name == "g++" else name)  # gcc alone is not enough
    config = mini_settings(tmp_path)
    config.train.compile = True
    with pytest.raises(UserError, match=r"train.compile=true needs g\+\+ on cpu: install it, or set "):
        build_components(config, torch.device("cpu"), 8, "x")


@pytest.mark.long
def test_compiled_towers_keep_parameter_names_and_results() -> None:
    if missing := missing_compiler(torch.device("cpu")):
        pytest.skip(f"torch.compile needs {missing}")
    plain, batch = small_run("open_clip:mini-vit-48", "open_clip:mini-vit-48")
    train_step(plain, batch, AT)
    plain.config.train.compile = True
    compiled = build_components(plain.config, torch.device("cpu"), 2, "x")
    train_step(compiled, batch, AT)
    expected = plain.state.model.state_dict()
    assert list(compiled.state.model.state_dict()) == list(expected)
    for name, value in compiled.state.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-5)


def resident() -> int:
    """Return the resident memory of this process in bytes (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.long
@pytest.mark.parametrize("accumulation", [1, 2])
def test_memory_does_not_grow_with_the_steps(accumulation: int) -> None:
    config = tiny.settings({"clip": {}, "sogclr": {}})
    config.train.accumulation, config.train.ema = accumulation, 0.99
    components, batch = tiny.components(config), next(tiny.batches(config, 1))
    tensors, memory = [], []
    for done in range(MICRO_BATCHES // accumulation):
        at = Progress(done, MICRO_BATCHES, 0, 1)
        numbers = train_step(components, batch, at)
        if done % EVERY == EVERY - 1:
            log_row(components, numbers, at), components.timer.read()
            gc.collect()
            tensors.append(sum(issubclass(type(found), torch.Tensor) for found in gc.get_objects()))
            memory.append(resident())
    assert len(set(tensors[1:])) == 1, f"tensors alive at every {EVERY}th step: {tensors}"
    half = len(memory) // 2
    assert max(memory[half:]) - max(memory[:half]) < 4 * 2**20, f"bytes at every {EVERY}th step: {memory}"


def test_the_log_has_peak_memory_of_this_run_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    components = tiny.components(tiny.settings(CLIP))
    numbers = train_step(components, next(tiny.batches(components.config, 1)), AT)
    assert "memory_gb" not in log_row(components, numbers, AT)
    peak = {"cuda": 7_000_000_000}  # of an earlier run in this process
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak[device.type])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peak.update({device.type: 2_500_000_000}))
    components.device = torch.device("cuda")
    reset_peak_memory(components.device)
    assert log_row(components, numbers, AT)["memory_gb"] == 2.5
