"""Folders and files that are there in full or not at all, also after a kill or a power cut."""

import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder to fill; it becomes `path` at the end, unless something was raised.

    Where `path` has come into being meanwhile (another process made the same), that one stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield made
        for file in made.rglob("*"):
            if file.is_file():
                _sync(file)
        made.chmod(0o755)  # mkdtemp makes folders private
        try:
            made.rename(path)
        except OSError:
            if not path.exists():
                raise
        else:
            _sync(path.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Replaces the file in one step."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """As `write_text`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # on a shared folder, another machine may have a process of the same number
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    temporary.write_bytes(data)
    _sync(temporary)
    temporary.replace(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_home() -> Path:
    """Return the folder of derived files (indices, rendered data, features): `$CLIPX_CACHE`, else `~/.cache/clipx`."""
    chosen = os.environ.get("CLIPX_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "clipx"


def content_hash(content: object) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a JSON-able content."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
