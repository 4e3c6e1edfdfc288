"""timm towers: image size and normalisation, weights from files and folders, errors."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from clipx.config.schema import ImageTowerConfig
from clipx.errors import UserError
from clipx.models.towers import timm_towers


def build(
    name: str, pretrained: str | None = None, size: int | None = None, embed_dim: int | None = 16, load: bool = True
) -> Any:
    config = ImageTowerConfig(name=f"timm:{name}", pretrained=pretrained, size=size)
    return timm_towers.build_timm_tower(config, embed_dim, load)


@pytest.mark.parametrize(("name", "size"), [("test_resnet", 64), ("test_vit", 64), ("test_efficientnet", None)])
def test_pooled_features_are_projected_at_any_image_size(name: str, size: int | None) -> None:
    tower = build(name, size=size)
    assert tower.inputs.image_size == (size or 160)
    module = tower.module.eval()
    image = torch.randn(2, 3, tower.inputs.image_size, tower.inputs.image_size)
    with torch.no_grad():
        features = module.body(image)
        assert features.ndim == 2
        assert torch.allclose(module(image), module.projection(features))
    assert module(image).shape == (2, 16)


def test_normalisation_follows_the_weights_even_if_they_are_not_loaded() -> None:
    imagenet, inception = (0.485, 0.456, 0.406), (0.5, 0.5, 0.5)
    with torch.device("meta"):
        assert build("resnet18").inputs.mean == imagenet
        assert build("vit_tiny_patch16_224").inputs.mean == inception
        assert build("vit_base_patch32_224", pretrained="sam_in1k", load=False).inputs.mean == inception
        assert build("vit_base_patch32_clip_224.openai").inputs.mean == pytest.approx((0.481, 0.458, 0.408), abs=1e-3)


@pytest.mark.parametrize(("classes", "where"), [(0, "file"), (7, "folder"), (7, "safetensors")])
def test_local_weights_are_loaded_with_or_without_a_classifier(tmp_path: Path, classes: int, where: str) -> None:
    torch.manual_seed(1)
    source = timm.create_model("test_resnet", num_classes=classes)
    if where == "file":
        torch.save(source.state_dict(), path := tmp_path / "w.pth")
    else:
        save_file(source.state_dict(), tmp_path / "model.safetensors")
        path = tmp_path if where == "folder" else tmp_path / "model.safetensors"
    body = build("test_resnet", str(path)).body
    expected = {k: v for k, v in source.state_dict().items() if not k.startswith("fc.")}
    found = body.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[k], expected[k]) for k in expected)


def test_local_weights_of_a_model_whose_published_weights_are_an_npz_file_are_loaded(tmp_path: Path) -> None:
    source = timm.create_model("vit_tiny_patch16_224", num_classes=0)
    save_file(source.state_dict(), tmp_path / "model.safetensors")
    body, key = build("vit_tiny_patch16_224", str(tmp_path)).body, "blocks.3.mlp.fc1.weight"
    assert torch.equal(body.state_dict()[key], source.state_dict()[key])


def test_weights_of_another_model_are_refused_and_never_loaded_partly(tmp_path: Path) -> None:
    torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"model.image.pretrained=.*w.pth does not hold weights of test_resnet"):
        build("test_resnet", str(tmp_path / "w.pth"))
    part = dict(list(timm.create_model("test_resnet").state_dict().items())[:10])
    torch.save(part, tmp_path / "part.pth")
    with pytest.raises(UserError, match=r"does not hold weights of test_resnet.*Missing key"):
        build("test_resnet", str(tmp_path / "part.pth"))


def test_published_weights_that_cannot_be_downloaded_are_refused_with_both_alternatives(no_hub: None) -> None:
    with pytest.raises(UserError, match=r"run `hf download timm/test_resnet.r160_in1k`.*local file or folder") as error:
        build("test_resnet", "r160_in1k")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "pretrained", "embed_dim", "message"),
    [
        ("resnet5o", None, 16, "did you mean 'resnet50'.*`clipx ls towers`"),
        ("resnet50", "openai", 16, "neither published weights, nor a file.*a1_in1k"),
        ("resnet50.nope", None, 16, "unknown tag; published for resnet50: a1_in1k"),
        ("resnet18", None, None, "model.embed_dim= is needed for model.image.name=timm:resnet18"),
    ],
)
def test_errors_name_the_key(name: str, pretrained: str | None, embed_dim: int | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(name, pretrained, embed_dim=embed_dim)


def test_published_weights_of_another_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*arguments: object, **settings: object) -> None:
        torch.nn.Linear(2, 3).load_state_dict(torch.nn.Linear(2, 2).state_dict())

    monkeypatch.setattr(timm, "create_model", load)
    with pytest.raises(UserError, match=r"pretrained=a1_in1k does not fit model.image.size=192: .*size mismatch"):
        timm_towers._load_published("levit_128.a1_in1k", {"img_size": 192})
