"""The released weights of paper 5, `wpse:FOLDER`: checkpoint_best.pt and config.yaml of github.com/sony/wpse.

Their model is timm's vision transformer, open_clip's text transformer, and clipx's point sets, so that the weights only
need other names. Two things differ: the random frequencies, which their evaluation draws anew each time, and texts with
the id 0 ("!" inside a word), which their model takes for padding.
"""

from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from clipx.config.schema import ModelConfig, RunConfig, TemperatureConfig
from clipx.config.setting import check, from_values
from clipx.errors import UserError, one_line, prefixed
from clipx.models.towers.open_clip_towers import read_weights
from clipx.utils.trust import load_yaml

PREFIX = "wpse:"
WEIGHTS, SETTINGS = "checkpoint_best.pt", "config.yaml"
TOWERS: dict[str, Any] = {  # timm's tag dino has their mean, deviation and interpolation: ImageNet's, bicubic
    "image": {"name": "timm:vit_base_patch16_224.dino"}, "text": {"name": "open_clip:wpse-b-16"}, "embed_dim": 512,
}  # fmt: skip
# their kernel -> ours, and their setting of its width
KERNELS = {"losses.RFFFeaturesGaussian": ("gaussian", "sigma"), "losses.RFFFeaturesIMQ": ("imq", "imq_c")}
ALLOWED: dict[str, tuple[object, ...]] = {  # the values for which clipx has the same model; None: not set
    "model._target_": ("models.CLIP_WPSE_VITB16",),
    "model.ln_eps": (1e-6,),
    "dataset.transform.interpolation": ("bicubic",),
    "model.weight_act": ({"_target_": "models.ScaledTanh", "alpha": 100},),
    "criterion.norm_linear_feat": (False, None),
    "criterion.normalize_weights_p": (None,),
    "criterion.rff_trick._target_": (*KERNELS,),
    "criterion.rff_trick.first_normalize": (True,),
}
HEADS = {"projection": "projection.weight", "weight_proj": "weight_head.weight"}  # their name -> ours, transposed


def load_config(name: str) -> RunConfig:
    """Return our settings of `wpse:FOLDER`. Raises UserError: a file is missing, or it describes another model."""
    file = Path(name.removeprefix(PREFIX)) / SETTINGS
    try:
        file.with_name(WEIGHTS).stat()
        theirs: Any = load_yaml(file.read_text(encoding="utf-8"))
        found = {key: reduce(lambda tree, part: (tree or {}).get(part), key.split("."), theirs) for key in ALLOWED}
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:  # AttributeError: a value where keys belong
        raise UserError(f"model={name} needs a folder with {WEIGHTS} and {SETTINGS}: {one_line(error)}") from error
    for key, allowed in ALLOWED.items():
        if found[key] not in allowed:
            raise UserError(f"{file}: {key}={found[key]}; allowed: {' or '.join(map(str, allowed))}")
    criterion, features = theirs["criterion"], theirs["criterion"]["rff_trick"]
    kernel, width = KERNELS[features["_target_"]]
    points = {"kernel": kernel, "width": features.get(width), "features_eval": features.get("dim_out")}
    points["alpha"] = criterion.get("comb_weights") or [0.0, 1.0]  # without these weights, the nonlinear kernel alone
    with prefixed(str(file)):
        check(model := from_values(ModelConfig, TOWERS | {"points": points}))
    config = RunConfig(name="wpse", recipe="", model=model, temperature=TemperatureConfig(parameterisation="identity"))
    config.data.before_projection = True  # paper 5, table 2
    return config


def load_weights(name: str) -> dict[str, Tensor]:
    """Return the weights of `wpse:FOLDER` by our names. Raises UserError: the file holds other values than tensors."""
    renamed = {}
    for theirs, weight in read_weights(str(Path(name.removeprefix(PREFIX)) / WEIGHTS)).items():
        side, _, head = theirs.partition("_")
        if side in ("image", "text") and head in HEADS:
            renamed[f"{side}.{HEADS[head]}"] = weight.T.contiguous()
        elif theirs.startswith("visual."):
            renamed[theirs.replace("visual", "image.body.trunk", 1)] = weight
        else:
            renamed["temperature.nu" if theirs == "logit_scale" else f"text.body.tower.{theirs}"] = weight
    return renamed
