"""What a run was made with: environment.json."""

import json
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

from clipx.atomic import write_text

PACKAGES = ("clipx", "torch", "torchvision", "open_clip_torch", "timm", "transformers", "numpy", "pillow")


def write(run: Path, device: torch.device) -> None:
    """Versions, git commit of the code (if it is a checkout) and devices."""
    git = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--verify", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    facts = {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "git_commit": git.stdout.strip() or None,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
    }
    write_text(run / "environment.json", json.dumps(facts, indent=1))
