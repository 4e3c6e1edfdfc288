"""Where the members of a tar file lie, without unpacking it.

Python's `tarfile` ends silently at the first damaged header and loses the rest of a shard; this scan
skips to the next readable header and says what it skipped. Nothing is extracted: names are only keys,
links are never followed.
"""

import os
import re
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

BLOCK = tarfile.BLOCKSIZE
LONG_NAME = tarfile.GNUTYPE_LONGNAME
PLAIN_NUMBER = re.compile(rb" *[0-7]+[ \0]*")  # octal
PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)


@dataclass(frozen=True)
class Member:
    """A regular file inside a tar file."""

    name: str
    offset: int  # of its first data byte
    size: int


def scan(path: Path) -> tuple[list[Member], list[str]]:
    """Members of a tar file in order, and a line for every damage found."""
    members: list[Member] = []
    damage: list[str] = []
    end = path.stat().st_size
    position, long_name, skipping, zeros = 0, "", False, False
    with path.open("rb") as file:
        while position + BLOCK <= end:
            header = os.pread(file.fileno(), BLOCK, position)
            if not any(header):  # the end marker, or a hole if a member follows
                zeros, position = True, position + BLOCK
                continue
            info = _header(header)
            if info is None or zeros:
                if not skipping:
                    damage.append(f"{path.name}: damaged header {'before' if zeros else 'at'} byte {position}")
                skipping, zeros, long_name = True, False, ""
            if info is None:
                position += BLOCK
                continue
            skipping = False
            data = position + BLOCK
            if data + info.size > end:
                damage.append(f"{path.name}: cut in the middle of {long_name or info.name}")
                break
            if info.type == LONG_NAME or info.type in PAX:
                long_name = _long_name(info.type, os.pread(file.fileno(), info.size, data)) or long_name
            else:
                if info.isreg():
                    members.append(Member(long_name or info.name, data, info.size))
                elif not info.isdir() and info.type != tarfile.XGLTYPE:
                    damage.append(f"{path.name}: {info.name} is a link or device, not followed")
                long_name = ""
            position = data + -(-info.size // BLOCK) * BLOCK
        else:
            if not zeros:
                damage.append(f"{path.name}: has no end marker, so it may be cut")
    return members, damage


def _header(block: bytes) -> "Plain | tarfile.TarInfo | None":
    """A member's header, None if it is damaged."""
    plain = _plain(block)
    if plain is not None:
        return plain
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return None
    return info if info.size >= 0 else None  # base-256 sizes may be negative


@dataclass(slots=True)
class Plain:
    """What is read of the header of a regular file with a short ASCII name, nearly all of a shard."""

    name: str
    size: int
    type: bytes = tarfile.REGTYPE

    def isreg(self) -> bool:
        return True

    def isdir(self) -> bool:
        return False


def _plain(block: bytes) -> Plain | None:
    """The header of such a file, ten times as fast as `TarInfo.frombuf`; None for any other one."""
    if block[156:157] != tarfile.REGTYPE or block[345] or not PLAIN_NUMBER.fullmatch(block, 124, 136):
        return None
    name, _, _ = block[:100].partition(b"\0")
    if not name.isascii() or not PLAIN_NUMBER.fullmatch(block, 148, 156):
        return None
    # the sum of all bytes, those of the sum itself as spaces: Adler-32's low half is that sum + 1, modulo 65521
    unsigned = zlib.adler32(block[:148] + b"        " + block[156:]) & 0xFFFF
    if unsigned != (int(block[148:156].strip(b" \0"), 8) + 1) % 65521:
        return None  # frombuf has the last word
    return Plain(name.decode(), int(block[124:136].strip(b" \0"), 8))


def _long_name(kind: bytes, record: bytes) -> str:
    """The name that a GNU long-name or pax record gives to the member after it, "" if it gives none."""
    if kind == LONG_NAME:
        return record.rstrip(b"\0").decode("utf-8", "surrogateescape")
    for line in record.split(b"\n"):  # pax: b"<length> <key>=<value>"
        _, _, pair = line.partition(b" ")
        key, _, value = pair.partition(b"=")
        if key == b"path":
            return value.decode("utf-8", "surrogateescape")
    return ""
