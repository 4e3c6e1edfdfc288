"""Point sets of open_clip towers: tokens, padding, weights, frequencies, and CLIP as the special case of one point."""

import math
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from open_clip.transformer import VisionTransformer
from timm.models import SwinTransformer
from torch import Tensor, nn

from clipx.config.schema import ImageTowerConfig, ModelConfig, PointsConfig, RunConfig, TextTowerConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.heads import KernelHead, SinglePointHead
from clipx.models.point_sets import BOUNDS, PaddedText, PointTower, TokenTower, to_token_tower
from clipx.models.towers.base import Projected
from clipx.models.towers.open_clip_towers import create_model
from clipx.types import PointSet
from tests.helpers.pairs import START, progress

TOWER, E = "open_clip:light-48", 16
pytestmark = pytest.mark.usefixtures("light_tower")


def config(kernel: str = "imq", tower: str = TOWER, **points: object) -> RunConfig:
    points_config = PointsConfig(kernel=kernel, features_train=64, features_eval=32, **points)  # type: ignore[arg-type]
    model = ModelConfig(image=ImageTowerConfig(name=tower), text=TextTowerConfig(name=tower), points=points_config)
    return RunConfig(name="x", recipe="x", model=model)


def build(settings: RunConfig) -> clip.ClipModel:
    torch.manual_seed(settings.seed)
    return clip.build_model(settings).eval()


def pixels() -> Tensor:
    return torch.randn(2, 3, 48, 48, generator=torch.Generator().manual_seed(1))


def texts(lengths: tuple[int, ...] = (3, 5)) -> Tensor:
    """Return token ids: start, words, end, and padding with id 0."""
    rows = torch.zeros(len(lengths), 32, dtype=torch.int64)
    for row, length in zip(rows, lengths, strict=True):
        row[0], row[length + 1] = 49406, 49407
        row[1 : length + 1] = torch.arange(100, 100 + length)
    return rows


def light_vit() -> nn.Module:
    return create_model("light-48", None, "model.image", custom_text=True).eval()


@torch.no_grad()
def test_the_class_token_and_the_end_token_match_the_plain_towers() -> None:
    model: Any = light_vit()
    image, text = model.visual(pixels()), model.text(texts())
    visual = to_token_tower(model.visual, "x")
    torch.testing.assert_close(visual.body(pixels())[:, 0] @ visual.projection, image)
    found = to_token_tower(model.text, "x")
    after = found.body(texts())[torch.arange(2), torch.tensor([4, 6])] @ found.projection
    torch.testing.assert_close(after, text)


def test_padding_ids_depend_only_on_the_distance_from_the_end_and_are_no_words() -> None:
    model: Any = light_vit()
    body = to_token_tower(model.text, "x").body
    assert type(body) is PaddedText
    vocabulary = 49408
    assert len(body.tower.token_embedding.weight) == vocabulary + 32 - 1
    text = texts((3, 5, 0, 30))
    text[0, 10] = 7  # padding with another id than 0
    found = body.padded(text)
    for row, length in zip(found, (3, 5, 0, 30), strict=True):
        count = 32 - length - 2
        assert row[length + 2 :].tolist() == [vocabulary + k for k in range(count)]
    assert torch.equal(found[:, :2], text[:, :2])
    assert torch.equal(found[3], text[3])


@torch.no_grad()
def test_padding_does_not_use_the_embedding_of_the_exclamation_mark() -> None:
    """Id 0 is both "!" and open_clip's padding. After the end of the text, id 0 must not be read as "!"."""
    model = build(config())
    text = texts()
    point_set: PointSet = model.text(text)
    with torch.no_grad():
        model.text.get_parameter("body.tower.token_embedding.weight")[0] += 10
    again: PointSet = model.text(text)
    torch.testing.assert_close(again.points, point_set.points)


def test_weights_are_bounded_and_initialised_as_in_the_paper() -> None:
    x = torch.tensor([-1e4, -50.0, 0.0, 1.0, 1e4])
    assert BOUNDS["tanh"](x).tolist() == pytest.approx([-100, -46.2117, 0, 0.99997, 100], rel=1e-4)
    assert BOUNDS["sigmoid"](x).tolist() == pytest.approx([0, 37.7541, 50, 50.25, 100], abs=1e-3)
    head = PointTower(TokenTower(nn.Identity(), torch.randn(4096, 4)), PointsConfig()).weight_head
    assert [name for name, _ in head.named_parameters()] == ["weight"]
    assert float(head.weight.data.std()) == pytest.approx(4096**-0.5, rel=0.1)


@torch.no_grad()
@pytest.mark.parametrize("weights", BOUNDS)
def test_masked_padding_has_no_weight(weights: str) -> None:
    points = PointsConfig(kernel="gaussian", weights=weights, reduce="sum")
    tokens = torch.randn(2, 3, 8)
    tower = PointTower(TokenTower(nn.Identity(), torch.randn(8, 4)), points)
    embed = KernelHead(points, 4, 0).evaluation(0)
    torch.testing.assert_close(embed(tower(F.pad(tokens, (0, 0, 0, 5)))), embed(tower(tokens)))


@torch.no_grad()
def test_clip_equals_one_point_of_weight_one_under_the_linear_kernel() -> None:
    plain = build(config(kernel="none"))
    embedded = plain.encode_image(pixels())
    one = PointSet(plain.image(pixels())[:, None], torch.ones(2, 1))
    torch.testing.assert_close(KernelHead(PointsConfig(kernel="linear"), E, 0).training(progress(0))(one), embedded)
    torch.testing.assert_close(plain(pixels(), texts(), progress(3))[0], embedded)


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_the_model_embeds_the_point_sets_of_its_towers(kernel: str) -> None:
    settings = config(kernel=kernel)
    model = build(settings)
    image, text, scale, bias = model(pixels(), texts(), progress(2))
    features = 0 if kernel == "linear" else 64
    assert image.shape == text.shape == (2, E + features)
    assert float(scale) == pytest.approx(1 / 0.07)
    assert bias is None
    sets: PointSet = model.image(pixels())
    assert sets.points.shape == (2, 10, E)  # 3 x 3 tokens and the class token
    unit = F.normalize(sets.points, dim=-1)
    first = (sets.weights[..., None] * unit).mean(dim=1) * (1.0 if kernel == "linear" else math.sqrt(0.5))
    torch.testing.assert_close(image[:, :E], first)
    assert model.encode_image(pixels()).shape == (2, E + features // 2)


def test_frequencies_depend_on_seed_and_step_in_training_and_on_the_draw_in_evaluation() -> None:
    points = PointsConfig(kernel="gaussian", features_train=16, features_eval=8)
    sets = PointSet(torch.randn(3, 4, 5), torch.randn(3, 4))
    head, other = KernelHead(points, 5, 7), KernelHead(points, 5, 7)
    other.training(progress(1))(sets)  # earlier draws must not matter
    torch.manual_seed(99)
    assert torch.equal(head.training(progress(4))(sets), other.training(progress(4))(sets))
    assert not torch.equal(head.training(progress(4))(sets), head.training(progress(5))(sets))
    assert not torch.equal(head.training(progress(4))(sets), KernelHead(points, 5, 8).training(progress(4))(sets))
    assert torch.equal(head.evaluation(2)(sets), KernelHead(points, 5, 8).evaluation(2)(sets))
    assert not torch.equal(head.evaluation(2)(sets), head.evaluation(3)(sets))


def test_images_and_texts_of_a_step_share_frequencies() -> None:
    head = KernelHead(PointsConfig(kernel="imq", alpha=[0.0, 1.0], features_train=4096), 5, 0)
    sets = PointSet(torch.randn(1, 1, 5), torch.ones(1, 1))
    embed_sets = head.training(progress(0))
    assert float(embed_sets(sets) @ embed_sets(sets).T) == pytest.approx(1.0, abs=0.05)  # the kernel at distance 0


def test_the_head_computes_in_float32_under_autocast() -> None:
    sets = PointSet(torch.randn(3, 4, 5), torch.randn(3, 4))
    head = KernelHead(PointsConfig(kernel="imq"), 5, 0)
    with torch.autocast("cpu", torch.bfloat16):
        inside = head.evaluation(0)(sets)
    torch.testing.assert_close(inside, head.evaluation(0)(sets), atol=0, rtol=0)


@pytest.mark.parametrize("reduce", ["mean", "sum"])
@torch.no_grad()
def test_penultimate_features_are_weighted_and_reduced_as_the_points_are(reduce: str) -> None:
    model = build(config(reduce=reduce))
    tower = model.image
    tokens = tower.get_submodule("body")(pixels())
    weights = model.image(pixels()).weights
    expected = getattr(weights[..., None] * tokens, reduce)(dim=1)
    torch.testing.assert_close(model.penultimate_features(pixels()), expected)


def test_towers_that_pool_and_project_in_one_step_have_no_penultimate_features() -> None:
    with pytest.raises(UserError, match="TimmModel has no features before a projection"):
        build(config(kernel="none", tower="open_clip:mini-48")).penultimate_features(pixels())


@pytest.mark.parametrize(
    "pooling",
    [{}, {"pool_type": "avg", "final_ln_after_pool": True}, {"pool_type": "avg"}, {"attentional_pool": True}],
)
@torch.no_grad()
def test_penultimate_features_are_the_projections_input_for_every_pooling(pooling: dict[str, Any]) -> None:
    tower = VisionTransformer(16, 8, 24, 2, 2, 2.0, output_dim=8, attn_pooler_heads=2, **pooling)
    image = torch.randn(2, 3, 16, 16)
    found = clip.FEATURES[VisionTransformer](tower, image)
    torch.testing.assert_close(found @ tower.get_parameter("proj"), tower(image))


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_tokens_of_a_timm_tower_are_the_cells_that_it_pools(channels_last: bool) -> None:
    trunk: Any = timm.create_model("test_efficientnet", num_classes=0)
    if channels_last:
        trunk = SwinTransformer(64, window_size=4, embed_dim=8, depths=(1, 1), num_heads=(1, 1), num_classes=0)
    tower, image = Projected(trunk.eval(), trunk.num_features, 8), torch.randn(2, 3, 64, 64)
    tokens = to_token_tower(tower, "model.image.name").body(image)
    assert tokens.shape == (2, 64 if channels_last else 4, trunk.num_features)
    torch.testing.assert_close(tokens.mean(dim=1), trunk(image))


@torch.no_grad()  # as in an evaluation
def test_all_that_is_trained_gets_a_gradient_as_ddp_requires() -> None:
    """timm normalises the pooled features of this tower, and there are none."""
    settings = config(kernel="linear")
    settings.model.image.name, settings.model.embed_dim = "timm:test_convnext", E
    model = build(settings)
    with torch.enable_grad():
        image, text, scale, _ = model(pixels(), texts(), progress(0))
        (image.sum() + text.sum() + scale).backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert without == {f"image.body.trunk.head.norm.{name}" for name in ("weight", "bias")}


def test_towers_without_tokens_and_unnormalised_points_are_refused() -> None:
    settings = config()
    settings.model.embed_dim = E
    # one vector; layers that follow the pooling; several feature maps
    for name in ("small:conv", "timm:mobilenetv3_small_050", "timm:crossvit_9_240"):
        settings.model.image.name = name
        with pytest.raises(UserError, match=rf"model\.image\.name={name} gives no tokens"):
            clip.build_model(settings)
    settings = config()
    settings.model.normalise = "never"
    with pytest.raises(UserError, match=r"model\.normalise=never"):
        clip.build_model(settings)


@pytest.mark.parametrize(
    ("normalise", "training", "evaluation"), [("always", 1, 1), ("evaluation", 5, 1), ("never", 5, 5)]
)
def test_a_single_point_has_unit_length_when_normalise_says_so(
    normalise: str, training: float, evaluation: float
) -> None:
    head, features = SinglePointHead(normalise), torch.tensor([[3.0, 4.0]])
    assert head.training(START)(features).norm() == pytest.approx(training)
    assert head.evaluation(0)(features).norm() == pytest.approx(evaluation)
    assert head.cosine is (evaluation == 1)
