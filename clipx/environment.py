"""What a run was made with: environment.json."""

import json
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

from clipx.atomic import write_text

PACKAGES = ("clipx", "torch", "torchvision", "open_clip_torch", "timm", "transformers", "numpy", "pillow")


def write(run: Path, device: torch.device) -> None:
    """Versions, git commit of the code (if it is a checkout) and devices."""
    facts = {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "git_commit": _git("rev-parse", "--verify", "HEAD") or None,
        "git_changes": bool(_git("status", "--porcelain")),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
    }
    write_text(run / "environment.json", json.dumps(facts, indent=1))


def _git(*arguments: str) -> str:
    """git's answer about the folder of this code, "" where there is none: no git, no checkout."""
    home = Path(__file__).parent.parent
    if shutil.which("git") is None or not (home / ".git").exists():
        return ""
    done = subprocess.run(["git", "-C", str(home), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()
