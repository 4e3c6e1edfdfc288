"""Position embeddings of start weights at another image size or context length."""

import json
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.errors import UserError
from clipx.models.towers import open_clip_towers
from clipx.models.towers.positions import fit_positions, stretch

pytestmark = pytest.mark.usefixtures("light_tower")


def test_clips_positions_are_stretched_as_in_long_clip() -> None:
    """Long-CLIP keeps 20 positions and adds three after each of the other 57: 20 + 4 * 57 = 248."""
    old = torch.randn(77, 3, generator=torch.Generator().manual_seed(0))
    expected = [row.tolist() for row in old[:20]]
    for place in range(20, 77):
        low = min(place, 75)  # after position 76, continue the line through the last two positions
        for quarter in range(4):
            share = place - low + quarter / 4
            expected.append(
                [(1 - share) * float(a) + share * float(b) for a, b in zip(old[low], old[low + 1], strict=True)]
            )
    assert len(expected) == 248
    torch.testing.assert_close(stretch(old, 248), torch.tensor(expected))


def test_a_shorter_context_keeps_the_first_positions() -> None:
    old = torch.randn(32, 4)
    assert torch.equal(stretch(old, 16), old[:16]) and torch.equal(stretch(old, 32), old)


def test_too_few_positions_are_not_stretched() -> None:
    assert stretch(torch.zeros(22, 4), 30).shape == (30, 4)
    with pytest.raises(UserError, match=r"model.text.context_length=30: .* have 21 positions, .*allowed: up to 21"):
        stretch(torch.zeros(21, 4), 30)


def saved(root: Path, tower: str, **sizes: Any) -> tuple[Path, dict[str, Tensor]]:
    """Save a model with random weights as open_clip does; return the file and its weights."""
    open_clip_towers.tower_names()  # registers the towers of clipx
    weights = open_clip.create_model(tower, force_custom_text=True, **sizes).state_dict()
    torch.save(weights, root / f"{tower}.pt")
    return root / f"{tower}.pt", weights


def loaded(file: Path, tower: str, size: int | None = None, length: int | None = None) -> Any:
    return open_clip_towers.create_model(
        tower, str(file), "model.image.pretrained", True, image_size=size, context_length=length
    ).eval()


@torch.no_grad()
def test_texts_that_fit_a_cut_context_have_the_same_embedding(tmp_path: Path) -> None:
    file, _ = saved(tmp_path, "light-48")
    tokens = torch.zeros(1, 32, dtype=torch.int64)
    tokens[0, :5] = torch.tensor([49406, 320, 736, 1125, 49407])
    expected = loaded(file, "light-48").encode_text(tokens)
    torch.testing.assert_close(loaded(file, "light-48", length=8).encode_text(tokens[:, :8]), expected)


def test_positions_of_a_file_that_has_the_wanted_size_are_loaded_unchanged(tmp_path: Path) -> None:
    file, weights = saved(tmp_path, "light-48", force_context_length=64, force_image_size=64)
    model = loaded(file, "light-48", 64, 64).state_dict()
    for key in ("visual.positional_embedding", "text.positional_embedding"):
        assert torch.equal(model[key], weights[key])
    cut = loaded(file, "light-48", 64).state_dict()["text.positional_embedding"]
    assert torch.equal(cut, weights["text.positional_embedding"][:32])


def test_a_whole_model_gets_the_first_positions_of_a_longer_text_tower(tmp_path: Path) -> None:
    weights = open_clip.create_model("light-48", force_context_length=64).state_dict()
    torch.save(weights, tmp_path / "long.pt")
    model, inputs = open_clip_towers.create_whole_model(f"open_clip:light-48/{tmp_path / 'long.pt'}", "model")
    assert inputs.context_length == 32
    assert torch.equal(model.state_dict()["positional_embedding"], weights["positional_embedding"][:32])


def resnet(root: Path) -> str:
    """Register an open_clip model with a small ResNet, whose attention pool has positions; return its name."""
    vision = {"layers": [1, 1, 1, 1], "width": 8, "head_width": 64, "image_size": 96}
    text = {"context_length": 32, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1}
    file = root / "small-resnet.json"
    file.write_text(json.dumps({"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}))
    open_clip.add_model_config(file)
    return file.stem


def resampled(positions: Tensor, old: int, new: int) -> Tensor:
    """Keep the first position and resample the others, a grid [old, old], bicubically to [new, new]."""
    grid = positions[1:].reshape(1, old, old, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(new, new), mode="bicubic", antialias=True)
    return torch.cat([positions[:1], grid.permute(0, 2, 3, 1).reshape(new**2, -1)])


@pytest.mark.parametrize(
    ("tower", "key", "size", "old", "new"),
    [("light-48", "visual.positional_embedding", 64, 3, 4), ("", "visual.attnpool.positional_embedding", 128, 3, 4)],
)
def test_start_weights_take_larger_images_and_longer_texts(
    tower: str, key: str, size: int, old: int, new: int, tmp_path: Path
) -> None:
    tower = tower or resnet(tmp_path)
    file, weights = saved(tmp_path, tower)
    model = loaded(file, tower, size=size, length=48)
    text = "text.positional_embedding"
    assert torch.equal(model.state_dict()[text], stretch(weights[text], 48))
    torch.testing.assert_close(model.state_dict()[key], resampled(weights[key], old, new))
    assert len(model.encode_image(torch.randn(2, 3, size, size))) == 2


def test_positions_of_timm_towers_are_resampled_and_grids_that_are_not_square_are_left(tmp_path: Path) -> None:
    positions, own = torch.randn(1, 10, 5), torch.zeros(1, 17, 5)
    fitted = fit_positions({"image.body.pos_embed": positions}, {"image.body.pos_embed": own})
    torch.testing.assert_close(fitted["image.body.pos_embed"][0], resampled(positions[0], 3, 4))
    assert (
        fit_positions({"image.pos_embed": positions}, {"image.pos_embed": own[:, :16]})["image.pos_embed"] is positions
    )


def test_weights_of_another_tower_are_refused_in_one_line(tmp_path: Path) -> None:
    file, _ = saved(tmp_path, "mini-vit-64")
    for size in (None, 64):
        with pytest.raises(UserError, match=r"model.image.pretrained=.*does not hold weights of micro-48") as error:
            loaded(file, "micro-48", size)
        assert "\n" not in str(error.value)
