"""Where derived files live: indices, rendered data, extracted features. Everything in it can be made again."""

import os
from pathlib import Path


def cache_home() -> Path:
    """`$CLIPX_CACHE`, else `~/.cache/clipx`."""
    chosen = os.environ.get("CLIPX_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "clipx"
