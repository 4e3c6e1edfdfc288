"""Compare the FLOPs and bytes of a step with formulas and with torch's counters."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import flop_registry

from clipx import objectives
from clipx.config.schema import (
    ImageTowerConfig,
    ModelConfig,
    OptimizerConfig,
    PointsConfig,
    RunConfig,
    TextTowerConfig,
    TrainConfig,
)
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.towers.base import Projected, Tower
from clipx.models.towers.build import TOWERS, TowerKind
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.training import optimizer
from clipx.training.cost import check_memory, count_step, flop_counter, images_at_peak
from clipx.training.devices import DEVICES
from clipx.training.forecast import forecast
from clipx.types import Embeddings, Pixels, Progress


def config(image: str, batch_size: int, text: str | None = None, kernel: str = "none") -> RunConfig:
    """Return the settings of a run with these towers, E = 128 and the term `clip`."""
    model = ModelConfig(image=ImageTowerConfig(name=image), text=TextTowerConfig(name=text or image), embed_dim=128)
    model.points = PointsConfig(kernel=kernel)
    train = TrainConfig(batch_size=batch_size, epochs=1)
    return RunConfig(name="x", recipe="x", model=model, train=train, objective={"clip": {}})


def small(batch_size: int) -> RunConfig:
    """Return the settings of a run with small towers; to count a step takes 0.3 s."""
    return config("small:conv", batch_size, "small:bag")


def transformer(layers: int, width: int, tokens: int) -> float:
    """Return forward FLOPs for width d and T tokens: 12 d^2 T + 2 T^2 d multiply-adds per layer."""
    return layers * (24 * width**2 * tokens + 4 * tokens**2 * width)


@pytest.fixture
def no_attention_in_torchs_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove attention from torch's table, so that only the formulas of `flop_counter` can count it."""
    for operation in [key for key in flop_registry if "attention" in str(key)]:
        monkeypatch.delitem(flop_registry, operation)


@pytest.mark.usefixtures("no_attention_in_torchs_table")
def test_attention_is_counted_by_its_formula() -> None:
    batch, heads, queries, keys, width = 2, 3, 5, 7, 8
    q, k, v = (torch.randn(batch, heads, n, width, requires_grad=True) for n in (queries, keys, keys))
    product = 2 * batch * heads * queries * keys * width
    with flop_counter() as counter:
        result = scaled_dot_product_attention(q, k, v)
        assert counter.get_total_flops() == 2 * product
        result.sum().backward()  # type: ignore[no-untyped-call]
        assert counter.get_total_flops() == (2 + 5) * product  # backward: one product again, and four of gradients


@pytest.mark.long
@pytest.mark.usefixtures("no_attention_in_torchs_table")
def test_flops_of_vit_b_16_match_its_shapes() -> None:
    patches = 2 * 196 * (3 * 16 * 16) * 768
    forward = transformer(12, 768, 197) + patches + transformer(12, 512, 77)
    whole = config("open_clip:ViT-B-16", 64)
    whole.model.embed_dim = None
    assert count_step(whole).tower_flops == pytest.approx(3 * 64 * forward, rel=0.01)
    checkpointed = replace(whole, train=replace(whole.train, grad_checkpointing=True))
    # checkpointing repeats the forward pass, except the last product of each layer, which backward does not need:
    # 4 d^2 of the 12 d^2 multiply-adds per token
    assert 3.6 * 64 * forward < count_step(checkpointed).tower_flops < 3.75 * 64 * forward


def test_flops_are_proportional_to_the_batch_and_rise_with_point_sets() -> None:
    one, many = (count_step(small(size)) for size in (8, 1024))
    assert many.tower_flops == 128 * one.tower_flops
    assert many.objective_flops == 8 * 1024**2 * 128
    points, sets = (count_step(config("small:vit", 8, "small:transformer", kernel)) for kernel in ("none", "imq"))
    assert sets.tower_flops > points.tower_flops


def test_processes_divide_the_flops_and_micro_batches_repeat_the_forward_pass() -> None:
    towers = small(512)
    whole, share = count_step(towers), count_step(towers, processes=64)
    assert (share.tower_flops, share.objective_flops) == (whole.tower_flops // 64, whole.objective_flops // 64)
    assert whole.memory["weights"] == share.memory["weights"] == pytest.approx(4 * whole.num_weights, rel=1e-3)
    assert whole.memory["optimizer"] == pytest.approx(8 * whole.num_trainable, rel=1e-3)
    assert (whole.memory["buckets"], share.memory["buckets"]) == (0, 4 * whole.num_trainable)

    parts = count_step(replace(towers, train=replace(towers.train, accumulation=8)))
    assert parts.tower_flops == pytest.approx(4 / 3 * whole.tower_flops, rel=0.05)
    assert parts.memory["gradients"] == pytest.approx(4 * whole.num_trainable, rel=1e-3)
    assert parts.memory["activations"] < whole.memory["activations"] / 6


class ReadsValues(Term):
    """A term that reads numbers of its embeddings, which fake tensors do not have."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        z = embeddings.image.sum()
        return z * (z.item() if self.how == "item" else float(z.detach().numpy())), {}


def test_a_term_that_fake_tensors_cannot_run_has_the_flops_of_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(objectives.TERMS, "reads_values", ReadsValues)
    monkeypatch.setitem(objectives.TERMS, "reads_array", ReadsValues)
    terms: dict[str, dict[str, object]] = {"reads_values": {"how": "item"}, "reads_array": {"how": "numpy"}}
    terms |= {"clip": {}, "keyword": {"denominator": "same_label"}}
    assert count_step(replace(small(64), objective=terms)).objective_flops == len(terms) * 8 * 64**2 * 128


class ReadsPixels(nn.Module):
    """A body of a plug-in's tower whose output depends on the values of the images in a way that needs the host."""

    def forward(self, image: Tensor) -> Tensor:
        return image.mean(dim=(2, 3)) if image.abs().max() < 100 else image.amax(dim=(2, 3))


def test_the_memory_of_a_tower_that_fake_tensors_cannot_run_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> Tower[Pixels]:
        body = ReadsPixels()
        return Tower(Projected(body, 3, 128), body, 128, Pixels(32, (0.5,) * 3, (0.5,) * 3, "bicubic", "shortest"))

    monkeypatch.setitem(TOWERS, "reads", TowerKind(image=build))
    run_config = config("reads:pixels", 8, "small:bag")
    assert check_memory(run_config, torch.device("cpu")) == "unknown for these towers"
    with pytest.raises(UserError, match="device=A100: a step of these towers cannot be counted"):
        forecast(run_config, 2, "A100")


@pytest.mark.parametrize("kind", ["timm:muon", "timm:adamp", "timm:kron"])
def test_an_optimizer_that_fake_tensors_cannot_run_is_counted_as_adamw(kind: str) -> None:
    found, expected = count_step(replace(small(64), optimizer=OptimizerConfig(kind=kind))), count_step(small(64))
    if kind == "timm:muon":  # some versions of timm can run it, with its own memory; its products are none of a tower
        assert found.tower_flops == expected.tower_flops
    else:
        assert found == expected


def test_torchs_memory_tracker_finds_the_same_peak() -> None:
    """Track the second step, as `count_step` does: only then do the moments of the optimizer exist from its start."""
    tracker = pytest.importorskip("torch.distributed._tools.mem_tracker").MemTracker()  # no public module of torch
    run_config = config("open_clip:mini-48", 256, "small:transformer")  # batch norms, attention
    with torch.device("meta"):
        model = clip.build_model(run_config, pretrained=False).train()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")
        update = optimizer.build_optimizer(model, run_config)
        image_shape, text_shape = model.input_shapes()
        image, text = torch.empty(256, *image_shape), torch.zeros(256, *text_shape, dtype=torch.int64)

        def step() -> None:
            outputs = model(image, text, Progress(0, 1, 0, 1))[:3]
            gradients: list[Tensor] = [torch.empty_like(output) for output in outputs]
            torch.autograd.backward(outputs, gradients)
            update.step()
            update.zero_grad()

        step()
        tracker.track_external(model, update, image, text)
        with tracker:
            step()
    expected = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    assert count_step(run_config).peak == pytest.approx(expected, rel=0.01)


def test_images_at_peak_leaves_out_recomputed_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(64)
    once, gpu = replace(config, train=replace(config.train, accumulation=1, grad_checkpointing=False)), "NVIDIA H200"
    twice = replace(config, train=replace(config.train, accumulation=2, grad_checkpointing=True))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: gpu)
    step = count_step(once)
    seconds = (step.tower_flops + step.objective_flops) / DEVICES["H200"].peak(config.train.precision)
    for counted in (once, twice):
        assert images_at_peak(counted, torch.device("cuda")) == pytest.approx(config.train.batch_size / seconds)
    gpu = "a GPU without a data sheet"
    assert images_at_peak(config, torch.device("cuda")) is images_at_peak(config, torch.device("cpu")) is None
