"""Read files and shards of evaluation sets.

No sample is ever skipped. An unusable sample stops the evaluation with an error that names the sample, because a score
over fewer examples is a different score.
"""

import json
from pathlib import Path
from typing import NoReturn

from clipx.data.preprocess.images import BadSample
from clipx.data.shards.reader import Shards
from clipx.errors import UserError

SPLIT_NAMES = ("train", "val", "dev", "test")


def short_name(folder: Path) -> str:
    """Return the last component of the path, or the last two if the last is a split: `flickr8k/test`."""
    parts = folder.resolve().parts
    return "/".join(parts[-2:] if parts[-1] in SPLIT_NAMES else parts[-1:])


def require_folder(spec: str, folder: Path) -> None:
    """Raise UserError if the data set's folder is missing; the message says how to get the data set."""
    if folder.is_dir():
        return
    if folder.name.startswith("scenes"):
        hint = "run `clipx train recipe=demo` to render the scenes sets"
    elif spec.startswith("wds:"):
        hint = f"get it with `hf download clip-benchmark/{folder.name} --repo-type dataset --local-dir {folder}`"
    else:
        hint = "give the folder that holds its .tar shards, for example as img2dataset writes them"
    raise UserError(f"datasets={spec}: no folder {folder}; {hint}")


def require_file(spec: str, path: Path, content: str) -> str:
    """Return the text of a file.

    Raises UserError: the file is missing or not UTF-8; the message has `content`, a description of the file.
    """
    if not path.is_file():
        raise UserError(f"datasets={spec}: {path} is missing; it should hold {content}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"datasets={spec}: {path} is not UTF-8; it should hold {content}") from None


def open_shards(spec: str, folder: Path, columns: tuple[str, ...]) -> Shards:
    """Open the shards of one split.

    Raises UserError: no samples, a corrupt shard, or a sample without one of `columns`.
    """
    shards = Shards.open(folder, columns)
    if shards.problems:
        count = len(shards.problems)
        raise UserError(f"datasets={spec}: {count} corrupt sample(s) in {folder}, first {shards.problems[0]}")
    return shards


def refuse(spec: str, shards: Shards, index: int, problem: str) -> NoReturn:
    """Raise UserError with the data set, the sample and the problem."""
    raise UserError(f"datasets={spec}: {shards.folder.name}/{shards.where(index)}: {problem}")


def read_text(spec: str, shards: Shards, index: int, column: str) -> str:
    """Return the stripped text of a sample's member. Raises UserError: the member cannot be read or is not UTF-8."""
    try:
        return shards.read(index, column).decode("utf-8").strip()
    except BadSample as error:
        refuse(spec, shards, index, str(error))
    except UnicodeDecodeError:
        refuse(spec, shards, index, f"its .{column} is not UTF-8")


def read_json(spec: str, shards: Shards, index: int) -> dict[str, object]:
    """Return the object in a sample's .json. Raises UserError: the .json cannot be read or is not an object."""
    try:
        value = json.loads(shards.read(index, "json"))
    except BadSample as error:
        refuse(spec, shards, index, str(error))
    except ValueError:  # includes invalid UTF-8
        refuse(spec, shards, index, "its .json is corrupt")
    if not isinstance(value, dict):
        refuse(spec, shards, index, "its .json is not an object")
    return value
