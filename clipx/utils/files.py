"""Atomic file and directory writes, safe against kills and power cuts; cache folder, content hash, recipe files."""

import fcntl
import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clipx.errors import UserError

UMASK = os.umask(0)  # it can only be read by setting it
os.umask(UMASK)
HIDDEN = ("__MACOSX", "@eaDir", "lost+found")  # folders that macOS, network drives and Linux add


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill, and rename it to `path` at the end unless an exception was raised.

    If another process has created `path` meanwhile, its folder is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        temporary.chmod(0o777 & ~UMASK)  # mkdtemp makes folders private
        try:
            temporary.rename(path)
        except OSError:
            if not path.exists():
                raise
        else:
            _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write, and replace `path` by it at the end unless an exception was raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # with the host name, because processes on other machines may have the same id
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    try:
        yield temporary
        temporary.chmod(0o666 & ~UMASK)  # safetensors makes files private
        _sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write or replace a file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write or replace a file atomically."""
    with new_file(path) as temporary:
        temporary.write_bytes(data)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold the lock `name` in a `with` block; wait while another process of this machine holds it.

    The operating system releases the lock if this process dies. `clipx.utils.lock` has locks between machines.

    Raises UserError: the file system of the cache has no locks.
    """
    locks = cache_home() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / content_hash(name)).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:  # such as Lustre that is mounted without locks
            reason = f"{error.strerror}; set the environment variable CLIPX_CACHE to a folder on another disk"
            raise UserError(f"files in {locks} cannot be locked: {reason}") from error
        yield


def cache_home() -> Path:
    """Return the cache folder (indices, rendered data, features): `$CLIPX_CACHE`, else `~/.cache/clipx`.

    Raises UserError: $CLIPX_CACHE is, or is below, a file.
    """
    given = os.environ.get("CLIPX_CACHE")
    if given and any(path.is_file() for path in (Path(given), *Path(given).parents)):
        raise UserError(f"the environment variable CLIPX_CACHE={given} cannot be used: give a folder")
    return Path(given or Path.home() / ".cache" / "clipx")


def expanded(place: str | Path) -> Path:
    """Return the path with the home folder in place of `~` or `~user`. Raises UserError: there is no such user."""
    try:
        return Path(place).expanduser()
    except RuntimeError as error:
        raise UserError(f"{place}: there is no user of this name") from error


def content_hash(content: object) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of JSON-serialisable content."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def recipe_files(folder: Path) -> list[Path]:
    """Return the recipe files in a folder, without hidden ones: Emacs locks a file with the broken link .#NAME.yaml."""
    return [file for file in sorted(folder.glob("*.yaml")) if not file.name.startswith(".")]
