"""The loader of paper 5's released weights, on a small copy of the authors' model and files.

test_encoder.py has the files that hold no weights.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import timm
import torch
import torch.nn.functional as F
from omegaconf import OmegaConf
from open_clip.transformer import QuickGELU, Transformer
from torch import Tensor, nn

from clipx.errors import UserError
from clipx.models import clip
from clipx.models.heads import STREAM
from clipx.models.kernels import sample_frequencies
from clipx.utils import rng
from clipx.utils.files import write_text
from evaluation.embedding import wpse
from evaluation.embedding.encoder import CPU, from_wpse
from tests.helpers import fakes
from tests.helpers.commands import clipx_here

E, WIDTH, LENGTH, VOCABULARY, FEATURES = 16, 32, 20, 49408, 24
SETTINGS: dict[str, Any] = {
    "dataset": {"transform": {"interpolation": "bicubic"}},
    "model": {
        "_target_": "models.CLIP_WPSE_VITB16",
        "ln_eps": 1.0e-6,
        "transformer_null_token_emb": "sequel",
        "weight_act": {"_target_": "models.ScaledTanh", "alpha": 100.0},
        "config_logit_scale": {"activation": {"_target_": "models.LogitScaleIdentity"}},
    },
    "criterion": {
        "_target_": "losses.CLIP_WPSE_Loss",
        "rff_trick": {
            "_target_": "losses.RFFFeaturesGaussian",
            "embed_dim": 512,
            "dim_out": FEATURES,
            "sigma": 0.5,
            "first_normalize": True,
            "parallel": "${distributed}",
        },
        "comb_weights": [0.667, 0.333],
    },
    "distributed": False,
}
IMQ = {"_target_": "losses.RFFFeaturesIMQ", "dim_out": FEATURES, "imq_c": 0.5, "first_normalize": True}


class Replica(nn.Module):
    """Tokens of timm's vision transformer and of a causal text transformer, each with a projection and a weight."""

    def __init__(self, trunk: str, width: int, layers: int, heads: int, length: int, E: int) -> None:
        super().__init__()
        self.visual = timm.create_model(trunk, num_classes=0)
        image_width = int(self.visual.num_features)  # type: ignore[arg-type]
        norm = partial(nn.LayerNorm, eps=1e-6)
        self.transformer = Transformer(width, layers, heads, act_layer=QuickGELU, norm_layer=norm)
        self.token_embedding = nn.Embedding(VOCABULARY + length - 1, width)
        self.positional_embedding = nn.Parameter(0.01 * torch.randn(length, width))
        self.ln_final = nn.LayerNorm(width, eps=1e-6)
        self.image_projection = nn.Parameter(torch.randn(image_width, E))
        self.text_projection = nn.Parameter(torch.randn(width, E))
        self.image_weight_proj = nn.Parameter(torch.randn(image_width, 1))
        self.text_weight_proj = nn.Parameter(torch.randn(width, 1))
        self.logit_scale = nn.Parameter(torch.tensor(20.0))
        self.token_embedding.weight.data *= 0.02

    def image(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens [b, K, width], and their weights [b, K]."""
        tokens = self.visual.forward_features(pixels)  # type: ignore[operator]
        return tokens, bounded(tokens @ self.image_weight_proj)

    def text(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens [b, K, width], and their weights [b, K]; each id 0 counts as the next padding token."""
        ids = torch.where(ids == 0, VOCABULARY - 1 + (ids == 0).cumsum(dim=1), ids)
        future = torch.full((ids.shape[1], ids.shape[1]), -torch.inf).triu(1)
        x = self.transformer(self.token_embedding(ids) + self.positional_embedding, attn_mask=future)
        tokens = self.ln_final(x)
        return tokens, bounded(tokens @ self.text_weight_proj)


def bounded(x: Tensor) -> Tensor:
    return (100 * torch.tanh(x / 100))[..., 0]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replica:
    """Return a small replica, for which clipx builds small towers."""
    text = {"context_length": LENGTH, "width": WIDTH, "heads": 2, "layers": 2, "norm_kwargs": {"eps": 1e-6}}
    image = {"image_size": 48, "layers": 1, "width": 64, "head_width": 64, "patch_size": 16}
    content = {"embed_dim": E, "quick_gelu": True, "vision_cfg": image, "text_cfg": text}
    write_text(tmp_path / "small-wpse.json", json.dumps(content))
    open_clip.add_model_config(tmp_path / "small-wpse.json")
    trunk = "vit_tiny_patch16_224"
    towers = {"image": {"name": f"timm:{trunk}"}, "text": {"name": "open_clip:small-wpse"}, "embed_dim": E}
    monkeypatch.setattr(wpse, "TOWERS", towers)
    torch.manual_seed(3)
    return Replica(trunk, WIDTH, 2, 2, LENGTH, E).eval()


def saved(folder: Path, replica: nn.Module, settings: dict[str, Any]) -> str:
    """Save a model in two files, as the authors' script does. Return `wpse:FOLDER`."""
    args = OmegaConf.create(settings)
    args._metadata.resolver_cache["now"]["%Y"] = "2025"  # Hydra has resolved ${now:%Y} before their script saves
    optimizer = torch.optim.AdamW(replica.parameters())
    optimizer.param_groups[0]["lr"] = np.linspace(0, 5e-4, 3)[1]  # their schedule is an array of NumPy
    folder.mkdir()
    OmegaConf.save(args, folder / "config.yaml")
    content = {"epoch": 35, "state_dict": replica.state_dict(), "optimizer": optimizer.state_dict(), "best_acc1": 41.0}
    torch.save({**content, "scaler": {"scale": 65536.0}, "args": args}, folder / "checkpoint_best.pt")
    return f"wpse:{folder}"


def changed(key: str, value: Any) -> dict[str, Any]:
    """Return their settings with another value of `a.b.c`."""
    settings = OmegaConf.create(SETTINGS)
    OmegaConf.update(settings, key, value, merge=False)
    found: Any = OmegaConf.to_container(settings)
    return found  # type: ignore[no-any-return]


def embedded(points: Tensor, weights: Tensor, kernel: str, alpha: tuple[float, float]) -> Tensor:
    """Return the weighted mean of the unit points and of their random features, with our frequencies."""
    omega, beta = sample_frequencies(kernel, 0.5, E, FEATURES, rng.generator(0, STREAM))
    v = F.normalize(points, dim=2)
    z = (2 / FEATURES) ** 0.5 * torch.cos(v @ omega.T + beta)
    means = [(weights[..., None] * part).mean(dim=1) * a**0.5 for part, a in zip((v, z), alpha, strict=True)]
    return torch.cat(means, dim=1)


@pytest.mark.parametrize(("kernel", "alpha"), [("gaussian", (0.667, 0.333)), ("imq", (0.0, 1.0))])
@torch.no_grad()
def test_embeddings_and_weights_equal_those_of_the_authors_model(
    small: Replica, tmp_path: Path, kernel: str, alpha: tuple[float, float]
) -> None:
    settings = SETTINGS if kernel == "gaussian" else changed("criterion", {**SETTINGS["criterion"], "rff_trick": IMQ})
    settings["criterion"]["comb_weights"] = list(alpha) if kernel == "gaussian" else None
    encoder = from_wpse(saved(tmp_path / "theirs", small, settings), CPU)
    pixels = torch.randn(2, 3, 224, 224)
    tokens, weights = small.image(pixels)
    expected = embedded(tokens @ small.image_projection, weights, kernel, alpha)
    torch.testing.assert_close(encoder.image(pixels), expected, atol=1e-5, rtol=1e-5)
    before = encoder.image_variants["before projection"](pixels)
    torch.testing.assert_close(before, (weights[..., None] * tokens).mean(dim=1), atol=1e-5, rtol=1e-5)
    ids = encoder.tokenize(["two cats on a sofa", "a dog"])
    tokens, weights = small.text(ids)
    expected = embedded(tokens @ small.text_projection, weights, kernel, alpha)
    torch.testing.assert_close(encoder.text(ids), expected, atol=1e-5, rtol=1e-5)
    assert "draw 4" in encoder.text_variants and not encoder.cosine


def test_at_full_size_every_weight_has_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, which stores shapes only. Also the pixels are theirs: ImageNet's mean and deviation."""
    name = saved(tmp_path / "theirs", nn.Linear(1, 1), SETTINGS)
    with torch.device("meta"):
        theirs = Replica("vit_base_patch16_224", 512, 12, 8, 77, 512).state_dict()
        monkeypatch.setattr(wpse, "read_weights", lambda file: theirs)
        found = wpse.load_weights(name)
        model = clip.build_model(wpse.load_config(name), pretrained=False)
    assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in model.state_dict().items()}
    pixels = model.inputs
    assert (pixels.image_size, pixels.interpolation, pixels.resize_mode) == (224, "bicubic", "shortest")
    assert (pixels.mean, pixels.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_clipx_eval_scores_the_folder(small: Replica, tmp_path: Path) -> None:
    name = saved(tmp_path / "theirs", small, SETTINGS)
    data = fakes.labelled(tmp_path / "shots", classes=3, test=6)
    tasks = "tasks=[zeroshot,zeroshot_draws]"
    done = clipx_here("eval", f"model={name}", f"datasets=[{data}]", tasks, "workers=0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "runs").glob("wpse_*/results.jsonl")
    assert "top1_spread_over_draws" in file.read_text()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("model._target_", "models.CLIP_VITB16", "yaml: model._target_=models.CLIP_VITB16; allowed: models.CLIP_W"),
        ("model.weight_act", None, "model.weight_act=None; allowed: {"),
        ("criterion.normalize_weights_p", 2, "criterion.normalize_weights_p=2; allowed: None"),
        ("criterion.rff_trick._target_", "os.system", "=os.system; allowed: losses.RFFFeaturesGaussian or losses.RFFF"),
        ("criterion.rff_trick.sigma", "wide", "config.yaml: .*width=wide must be a number"),
        ("criterion", "none", "needs a folder with checkpoint_best.pt and config.yaml: .*no attribute"),
    ],
)
def test_settings_of_another_model_are_refused(tmp_path: Path, key: str, value: Any, reason: str) -> None:
    name = saved(tmp_path / "theirs", nn.Linear(1, 1), changed(key, value))
    with pytest.raises(UserError, match=reason):
        wpse.load_config(name)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"state_dict": nn.Linear(1, 1)}, "checkpoint_best.pt holds Python objects, such as a whole module"),
        ({"state_dict": {"a": torch.ones(1)}}, "is of another model: image.body.trunk.blocks.0.attn"),
    ],
    ids=["module", "other weights"],
)
def test_other_content_than_weights_is_refused(small: Replica, tmp_path: Path, content: Any, reason: str) -> None:
    name = saved(tmp_path / "theirs", nn.Linear(1, 1), SETTINGS)
    torch.save(content, tmp_path / "theirs/checkpoint_best.pt")
    with pytest.raises(UserError, match=reason):
        from_wpse(name, CPU)
    (tmp_path / "theirs/checkpoint_best.pt").unlink()
    with pytest.raises(UserError, match=r"model=wpse:.*theirs needs a folder with checkpoint_best.pt and config.yaml"):
        from_wpse(name, CPU)
