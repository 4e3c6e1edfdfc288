"""Write a user's package: a plug-in with a term (column, bias), a task, a source, towers, a mask and a recipe."""

import json
from pathlib import Path

PACKAGE = "okapi_plugin"
NAME = f"{PACKAGE}.plugin"
TERM = '''"""Sigmoid loss with a column that counts how often each pair was in a batch."""

import torch
from torch.nn.functional import logsigmoid

from clipx.objectives.base import Term


class CountedTerm(Term):
    """x/B times the sum of the sigmoid losses of all B x B pairs."""

    needs = ("bias",)
    columns = {"counted_visits": 0.0}

    def __init__(self, x: float = 1.0) -> None:
        self.x = x

    def __call__(self, embeddings, rows, progress):
        z = embeddings.scale * embeddings.image @ embeddings.text.T + embeddings.bias
        sign = 2 * torch.eye(len(z), dtype=z.dtype) - 1
        return -self.x * logsigmoid(sign * z).sum() / len(z), {"counted_visits": rows["counted_visits"] + 1}
'''
TASK = """from evaluation.metrics import retrieval_ranks
from evaluation.tasks.rows import CaptionTask, row
from evaluation.types import Score


class FirstPlaces(CaptionTask):
    name, kind, version = "first_places", "captioned", 1

    def score(self, dataset, features, device="cpu", cosine=True):
        image, text = (features[request] for request in self.requests(dataset))
        ranks = retrieval_ranks(image, text, dataset.image_of_caption("test")).text_to_image
        hits = (ranks == 1).double()
        result = row(self.name, dataset.short, "test", "share", hits, hits * 0 + 1, len(text), 1 / len(image))
        return Score([result])
"""
TOWERS = """from pathlib import Path

import open_clip
from timm.models import register_model
from timm.models.vision_transformer import VisionTransformer


@register_model
def okapi_vit_48(pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, cache_dir=None, **options):
    model = VisionTransformer(img_size=48, patch_size=16, embed_dim=32, depth=1, num_heads=2, **options)
    model.default_cfg = {}
    return model


open_clip.add_model_config(Path(__file__).parent / "okapi-48.json")
"""
PLUGIN = f"""from pathlib import Path

from clipx.data.sources.files import FilePairs
from clipx.models.towers.base import ImageTower
from clipx.models.towers.build import TowerKind
from clipx.types import Pixels
from {PACKAGE} import towers
from {PACKAGE}.tasks import FirstPlaces
from {PACKAGE}.terms import CountedTerm


def folders(config):
    root = Path(config.root)
    images = sorted(root.glob("*/*.jpg"))
    rows = [(str(path.relative_to(root)), f"a photo of a {{path.parent.name}} {{path.stem}}") for path in images]
    return FilePairs(root, rows, captions="each", problems=[])


def flat(config, E, load):
    from torch import nn

    module = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, E))
    return ImageTower(module, module, E, Pixels(48, (0.5,) * 3, (0.5,) * 3, "bicubic", "shortest"))


TERMS = {{"counted": CountedTerm}}
TASKS = {{"first_places": FirstPlaces()}}
SOURCES = {{"folders": folders}}
TOWERS = {{"flat": TowerKind(image=flat)}}
MASKS = {{"whole": lambda B, E, generator: __import__("torch").ones(B, 1)}}
RECIPES = Path(__file__).parent / "recipes"
"""
CONFIG = {
    "embed_dim": 128,
    "vision_cfg": {"image_size": 48, "timm_model_name": "okapi_vit_48", "timm_pool": "", "timm_proj": "linear"},
    "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 128, "heads": 2, "layers": 1},
}
RECIPE = f"""# Training on the plug-in's source of pairs.
plugins: [{NAME}]
defaults:
  - override /data: folders
model: {{image: {{name: "open_clip:okapi-48"}}, text: {{name: "open_clip:okapi-48"}}}}
train: {{samples: 32, batch_size: 8, save_every: 1}}
schedule: {{warmup_steps: 0}}
arms:
  counted: [objective=counted, temperature.bias=-5]
  clip: []
"""


def write_package(folder: Path) -> Path:
    """Write the package into `folder`; return `folder`."""
    package = folder / PACKAGE
    (package / "recipes").mkdir(parents=True)
    contents = {"__init__": "", "plugin": PLUGIN, "terms": TERM, "tasks": TASK, "towers": TOWERS}
    for name, text in contents.items():
        (package / f"{name}.py").write_text(text)
    (package / "okapi-48.json").write_text(json.dumps(CONFIG))
    (package / "recipes" / "okapi.yaml").write_text(RECIPE)
    return folder
