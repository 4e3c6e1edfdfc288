"""environment.json: versions, git commit and device of a run, and what has changed when it was resumed."""

import json
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from clipx import distributed
from clipx.run.folder import ENVIRONMENT
from clipx.utils.files import write_text

PACKAGES = ("clipx", "torch", "torchvision", "open_clip_torch", "timm", "transformers", "numpy", "pillow")


def write(run: Path, device: torch.device, step: int, more: Mapping[str, Any] | None = None) -> None:
    """Write environment.json: the current environment and the entries of `more`. Only rank 0 calls this.

    When a run resumes at `step`, only the entries that have changed are added, as file["later"]["step_<step>"].
    """
    path = run / ENVIRONMENT
    now = {**_current(device), **(more or {})}
    try:
        known: dict[str, Any] = json.loads(path.read_text()) if step else {}
    except (OSError, ValueError):
        known = {}
    if not known:
        write_text(path, json.dumps(now, indent=1))
        return
    before = {**known, **{key: value for later in known.get("later", {}).values() for key, value in later.items()}}
    changed = {key: value for key, value in now.items() if before.get(key) != value}
    if changed:
        known.setdefault("later", {}).setdefault(f"step_{step}", {}).update(changed)
        write_text(path, json.dumps(known, indent=1))


def _current(device: torch.device) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "git_commit": _git("rev-parse", "--verify", "HEAD") or None,
        "git_changes": bool(_git("status", "--porcelain")),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processes": distributed.world_size(),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
    }


def _git(*arguments: str) -> str:
    """Run git on the checkout of this code and return its output; "" without git or without a checkout."""
    root = Path(__file__).parents[2]
    if shutil.which("git") is None or not (root / ".git").exists():
        return ""
    result = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return result.stdout.strip()
