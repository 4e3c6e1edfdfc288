"""Weights between a run's start weights and its trained weights (WiSE-FT: Wortsman et al. 2022, arXiv 2109.01903).

All floating-point tensors are interpolated, including the running statistics of batch norms, which are not measured
again for the new weights. Integer buffers, such as counts of batches, are those of the run.
"""

from pathlib import Path

import torch

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models.clip import ClipModel
from clipx.run.folder import RunFolder
from clipx.run.initial_weights import KEY, build_initial_model, weights_source

SETTING = "interpolate="


def interpolate(model: ClipModel, config: RunConfig, run: Path, digest: str, alpha: float) -> str:
    """Set the model, which has the weights of a run, to (1 - alpha) start weights + alpha weights of the run.

    Returns the SHA-256 of the file with these weights: `digest` at alpha = 1, that of model.init at alpha = 0, else "".

    Raises UserError like `check_start_weights`, or if the start weights cannot be loaded.
    """
    check_start_weights(config, run)
    start, end = build_initial_model(config).state_dict(), model.state_dict()
    mixed = {key: torch.lerp(start[key], w, alpha) if w.is_floating_point() else w for key, w in end.items()}
    model.load_state_dict(mixed)
    source = weights_source(config, "init").get("init", {})
    return {0.0: str(source.get("sha256", "")), 1.0: digest}.get(alpha, "")


def check_start_weights(config: RunConfig, run: Path) -> None:
    """Raise UserError if a run did not start from weights on disk, or if those of model.init have changed since."""
    if config.model.init is not None:
        now = weights_source(config, "init")["init"]
        then = RunFolder(run).environment.get("init", now)
        if now["sha256"] != then["sha256"]:
            raise UserError(
                f"{SETTING} needs the start weights of {run}, {then['checkpoint']}; {KEY}={config.model.init} now "
                f"gives others, {now['checkpoint']}"
            )
        return
    for side, tower in (("image", config.model.image), ("text", config.model.text)):
        key = f"model.{side}"
        if tower.pretrained is None:
            random = f"a random {side} tower ({key}.pretrained and {KEY} are null)"
        elif not tower.name.startswith("open_clip:"):
            random = f"a random projection ({key}.name={tower.name}, {KEY} is null)"
        elif config.model.points.kernel != "none":
            random = f"random point weights (model.points.kernel={config.model.points.kernel}, {KEY} is null)"
        else:
            continue
        raise UserError(f"{SETTING} needs start weights on disk, but {run} started from {random}")
