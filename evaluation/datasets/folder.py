"""What the evaluation data sets on disk share: one `Shards` a split, images and texts in the shards' order.

An evaluation drops nothing: a sample that cannot be used stops it with the sample's name, because a number
over fewer examples than the set has is another number.
"""

import json
from pathlib import Path
from typing import NoReturn

from clipx.data.preprocess.images import BadSample
from clipx.data.shards.reader import Shards
from clipx.errors import UserError

SPLIT_NAMES = ("train", "val", "dev", "test")


def short_name(folder: Path) -> str:
    """The folder's last component, or the last two when the last only names a split: `flickr8k/test`."""
    parts = folder.resolve().parts
    return "/".join(parts[-2:] if parts[-1] in SPLIT_NAMES else parts[-1:])


def require_folder(spec: str, folder: Path) -> None:
    """Raises UserError when the folder of the data set `spec` is not there, with the command that gets it."""
    if folder.is_dir():
        return
    if folder.name.startswith("scenes"):
        hint = "`clipx train recipe=demo` renders the scenes sets"
    elif spec.startswith("wds:"):
        hint = f"`hf download clip-benchmark/{folder.name} --repo-type dataset --local-dir {folder}` gets it"
    else:
        hint = "give the folder that holds its .tar shards, for example as img2dataset writes them"
    raise UserError(f"datasets={spec}: no folder {folder}; {hint}")


def require_file(spec: str, path: Path, content: str) -> str:
    """The text of a layout file.

    Raises:
        UserError: it is missing or no UTF-8, naming the file and what belongs into it.
    """
    if not path.is_file():
        raise UserError(f"datasets={spec}: {path} is missing; it should hold {content}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"datasets={spec}: {path} is not UTF-8; it should hold {content}") from None


def open_shards(spec: str, folder: Path, columns: tuple[str, ...]) -> Shards:
    """The shards of one split, every sample complete.

    Raises:
        UserError: no samples, a damaged shard, or a sample without one of `columns`.
    """
    shards = Shards.open(folder, columns)
    if shards.problems:
        count = len(shards.problems)
        raise UserError(f"datasets={spec}: {count} damaged sample(s) in {folder}, first {shards.problems[0]}")
    return shards


def refuse(spec: str, shards: Shards, index: int, problem: str) -> NoReturn:
    """Raises UserError naming the data set, the sample and what is wrong with it."""
    raise UserError(f"datasets={spec}: {shards.folder.name}/{shards.where(index)}: {problem}")


def read_text(spec: str, shards: Shards, index: int, column: str) -> str:
    """A text member, stripped.

    Raises:
        UserError: it cannot be read, or is no UTF-8.
    """
    try:
        return shards.read(index, column).decode("utf-8").strip()
    except BadSample as error:
        refuse(spec, shards, index, str(error))
    except UnicodeDecodeError:
        refuse(spec, shards, index, f"its .{column} is not UTF-8")


def read_json(spec: str, shards: Shards, index: int) -> dict[str, object]:
    """The sample's .json object.

    Raises:
        UserError: it cannot be read, or is no JSON object.
    """
    try:
        value = json.loads(shards.read(index, "json"))
    except BadSample as error:
        refuse(spec, shards, index, str(error))
    except ValueError:  # also no UTF-8
        refuse(spec, shards, index, "its .json is damaged")
    if not isinstance(value, dict):
        refuse(spec, shards, index, "its .json is not an object")
    return value
