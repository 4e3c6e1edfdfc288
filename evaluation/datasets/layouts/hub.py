"""hf:PLACE: a data set in a repository of the Hugging Face hub or in a local folder.

The data set is in CLIP-benchmark's layout (see shards.py), or its rows are image-caption pairs (see training.py).
"""

from pathlib import Path

from clipx.errors import UserError
from clipx.utils.hub import quiet_hub
from evaluation.datasets.kinds import Captioned, Labelled
from evaluation.datasets.layouts.shards import open_wds
from evaluation.datasets.layouts.training import open_rows
from evaluation.types import Settings


def open_hub(spec: str, place: Path, settings: Settings) -> Labelled | Captioned:
    """Open hf:FOLDER or hf:REPOSITORY, for pairs also with @SPLIT. Without a network, repositories come from the cache.

    Raises UserError: the repository is neither reachable nor cached; the message has the download command.
    """
    name, _, split = str(place).partition("@")
    folder = Path(name) if Path(name).is_dir() else _download(spec, name)
    if any(folder.glob("*/nshards.txt")):
        opened = open_wds(spec, folder, settings)
        opened.short = Path(name).name  # the cache's folders are named by commit
        return opened
    return open_rows(spec, folder, Path(name).name, split, settings)


def _download(spec: str, name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        with quiet_hub(fetching=True):
            return Path(snapshot_download(name, repo_type="dataset"))
    except Exception as error:  # the hub's client raises a dozen types
        raise UserError(
            f"datasets={spec}: the hub cannot be reached or has no such data set, and it is not cached here; run "
            f"`hf download {name} --repo-type dataset` where there is a network, or give wds:FOLDER"
        ) from error
