"""Count the files that a reader passes: those with a frame that receives the config, or a node of it, or a result row.

`python -m tests.helpers.passes` runs `clipx train`, `clipx eval` and `clipx report` once on a tiny run of recipe=demo,
and prints three numbers with their files: the config through train, the config through eval, a row through report.
"""

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, get_args, get_type_hints

from clipx.config.evaluation import EvalConfig
from clipx.config.schema import RunConfig
from evaluation.types import Result
from tests.helpers.commands import clipx_here

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(f"{ROOT / package}/" for package in ("cli", "clipx", "evaluation"))
SIZES = "data.scenes.num_train=256 data.scenes.test_images=40 data.scenes.test_pairs=20 train.samples=256 name=demo"
TRAIN = ["train", "recipe=demo", "train.device=cpu", "data.workers=0", "schedule.warmup_steps=1", *SIZES.split()]


def nodes(schema: type) -> set[type]:
    """Return a settings dataclass with the dataclasses of its fields, their fields, and so on."""
    assert is_dataclass(schema)
    hints = get_type_hints(schema)
    types = {kind for field in fields(schema) for kind in (hints[field.name], *get_args(hints[field.name]))}
    return {schema}.union(*(nodes(kind) for kind in types if isinstance(kind, type) and is_dataclass(kind)))


def receives(frame: FrameType, wanted: tuple[type, ...]) -> bool:
    """Return True if an argument of the frame's function is one of these types, or a list or tuple that starts so."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    values = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    firsts = [value[0] for value in values if isinstance(value, list | tuple) and value]
    return any(isinstance(value, wanted) for value in values + firsts)


@contextmanager
def receiving_files(wanted: set[type]) -> Iterator[set[str]]:
    """Collect the files of the packages with a frame that receives one of these types, in all threads."""
    found: set[str] = set()
    others: set[CodeType] = set()  # functions of other packages: most calls, so these are left out first

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code in others:
            return
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGES):
            others.add(frame.f_code)
        elif file not in found and receives(frame, tuple(wanted)):
            found.add(file)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def passed(arguments: list[str], wanted: set[type], folder: Path) -> list[str]:
    """Return the files, relative to the repository, that receive one of the types in a call of `clipx` in a folder."""
    with receiving_files(wanted) as found:
        clipx_here(*arguments, cwd=folder)
    return sorted(str(Path(file).relative_to(ROOT)) for file in found)


def count(folder: Path) -> dict[str, list[str]]:
    """Run the three commands in this folder; return what each passes to which files."""
    settings = nodes(RunConfig) | nodes(EvalConfig)
    return {
        "config through clipx train": passed(TRAIN, settings, folder),
        "config through clipx eval": passed(["eval", "runs/demo/s0", "workers=0"], settings, folder),
        "result row through clipx report": passed(["report", "runs/demo"], {Result}, folder),
    }


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        for what, files in count(Path(name)).items():
            print(f"{what}: {len(files)} files", *files, sep="\n  ")
