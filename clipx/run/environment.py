"""What a run was made with: environment.json; later starts with other versions or devices are added to it."""

import json
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from clipx import distributed
from clipx.utils.files import write_text

PACKAGES = ("clipx", "torch", "torchvision", "open_clip_torch", "timm", "transformers", "numpy", "pillow")

NOTHING: Mapping[str, Any] = MappingProxyType({})


def write(run: Path, device: torch.device, step: int, more: Mapping[str, Any] = NOTHING) -> None:
    """Versions, git commit of the code (if it is a checkout), devices and `more`, by rank 0.

    What has changed when the run was resumed at `step` stands below "later", "step_<step>".
    """
    if distributed.rank() > 0:
        return
    path = run / "environment.json"
    now = {**_facts(device), **more}
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


def _facts(device: torch.device) -> dict[str, Any]:
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
    """git's answer about the folder of this code, "" where there is none: no git, no checkout."""
    home = Path(__file__).parents[2]
    if shutil.which("git") is None or not (home / ".git").exists():
        return ""
    done = subprocess.run(["git", "-C", str(home), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()
