"""Embeddings made elsewhere (data=embeddings): vectors of images and texts in files, instead of images and captions.

    clip-retrieval's folder     img_emb/img_emb_0.npy, text_emb/text_emb_0.npy, ..., metadata/metadata_0.parquet
    DataComp's metadata         *.npz, each with arrays such as b32_img, b32_txt, l14_img, l14_txt

data.image_column and data.caption_column name the folders, or the arrays of the .npz files. Files are memory-mapped: a
batch reads only its rows. Parts are in the order of their numbers; a sample id is a row of the whole set.
"""

import hashlib
import re
import zipfile
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clipx.data.features import EMBEDDED, Features
from clipx.data.preprocess.captions import plain
from clipx.data.sources.base import PairSource, evenly_spaced
from clipx.errors import UserError, one_line
from clipx.utils.files import new_folder

Array = NDArray[Any]
METADATA, CAPTION = "metadata", "caption"  # folder, and its column
SIDES = ("image", "text")
DEFAULT_NAMES = ("img_emb", "text_emb")  # folders of clip-retrieval
PART = 100_000  # rows of a file that clipx writes


class Vectors:
    """The vectors [n, width] of several files, one file after the other."""

    def __init__(self, files: list[Path], parts: list[Array]) -> None:
        """Raises UserError: a file holds no vectors, or those of two files have different widths."""
        for file, part in zip(files, parts, strict=True):
            if part.ndim != 2 or part.dtype.kind != "f" or part.itemsize > 8:  # torch has no longer floats
                raise UserError(f"{file} holds {part.dtype} {list(part.shape)}; expected float16, 32 or 64 [n, width]")
            if part.shape[1] != parts[0].shape[1]:
                raise UserError(f"{file} has vectors of width {part.shape[1]}, {files[0]} of {parts[0].shape[1]}")
        self.files, self.parts, self.width = files, parts, int(parts[0].shape[1])
        self.dtype = np.result_type(*parts)
        self.ends = np.cumsum([len(part) for part in parts])  # first row after each part

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, numbers: Array) -> Array:
        """Return b rows, [b, width] in the files' precision."""
        found = np.empty((len(numbers), self.width), self.dtype)
        of_part = np.searchsorted(self.ends, numbers, side="right")
        for at in np.unique(of_part):
            rows = np.flatnonzero(of_part == at)
            order = rows[np.argsort(numbers[rows])]  # ascending, to read the file in order
            found[order] = self.parts[at][numbers[order] - (self.ends[at] - len(self.parts[at]))]
        return found


class EmbeddingPairs(PairSource):
    """Pairs of vectors; captions come from the metadata, if there are any."""

    def __init__(self, root: Path, names: tuple[str, str], sides: list[Vectors]) -> None:
        """`sides`: the image and the text vectors; `names`: of their folders or arrays.

        Raises UserError: there are no pairs or not as many texts as images, or a sampled vector is not finite.
        """
        image, text = sides
        for number, (part, other) in enumerate(zip(image.parts, text.parts, strict=False)):
            if len(part) != len(other):
                files = f"{image.files[number]} has {len(part):,} rows, {text.files[number]} {len(other):,}"
                raise UserError(f"data.root={root}: {files}; the rows of both must be pairs")
        self.metadata = _numbered(root / METADATA, "[!.]*.parquet")  # none that is hidden
        rows = sum(_parquet(file).metadata.num_rows for file in self.metadata)
        n = len(image)
        if not n or len(text) != n or (self.metadata and rows != n):
            counts = f"{n:,} images, {len(text):,} texts" + (f", {rows:,} rows of {METADATA}" if self.metadata else "")
            raise UserError(f"data.root={root}: {counts}; the embedding is incomplete")
        state = np.full(n, EMBEDDED, np.uint8)
        self.features = {
            side: Features(vectors, state, (vectors.width,)) for side, vectors in zip(SIDES, sides, strict=True)
        }
        some = np.unique(evenly_spaced(n))
        sampled = [vectors[some] for vectors in sides]
        for name, values in zip(names, sampled, strict=True):
            if not np.isfinite(values).all():
                row = int(some[~np.isfinite(values).all(axis=1)][0])
                raise UserError(f"data.root={root}: row {row} of {name} has a value that is not finite")
        content = b"".join(values.tobytes() for values in sampled)
        self.fingerprint = f"{n}:{hashlib.sha256(content + repr(names).encode()).hexdigest()[:16]}"

    def __len__(self) -> int:
        return len(self.features["image"])

    def where(self, sample_id: int) -> str:
        return f"row {sample_id}"

    def image(self, sample_id: int) -> bytes:
        """Return the bytes of both vectors. A resumed run compares them, to notice that the data have changed."""
        return b"".join(features.take(np.array([sample_id])).numpy().tobytes() for features in self.features.values())

    def captions(self, sample_id: int) -> list[str]:
        return [self.texts[sample_id] if self.texts else self.where(sample_id)]

    @cached_property
    def texts(self) -> list[str]:
        """The captions of all rows, or [] if the metadata have none. Read on first use: they may take gigabytes."""
        found: list[str] = []
        for file in self.metadata:
            table = _parquet(file)
            if CAPTION not in table.schema_arrow.names:
                return []
            found += [str(text or "") for text in table.read([CAPTION])[CAPTION].to_pylist()]
        return found


def open_embeddings(root: Path, names: tuple[str, str]) -> EmbeddingPairs:
    """Open the embeddings below `root`; `names`: data.image_column and data.caption_column.

    Raises UserError: files are missing, a part has one side only, or a file is no such embedding.
    """
    if not root.is_dir():
        raise UserError(f"data.root={root}: no such folder")
    archives = _numbered(root, "[!.]*.npz")
    if archives:
        sides = [Vectors(archives, [_array(file, name) for file in archives]) for name in names]
        return EmbeddingPairs(root, names, sides)
    sides = []
    for key, name in zip(("image_column", "caption_column"), names, strict=True):
        files = _numbered(root / name, f"{name}_*.npy")
        if not files:
            raise UserError(
                f"data.root={root} has neither {name}/{name}_0.npy nor a .npz file; data.{key}={name} names the folder"
            )
        sides.append(Vectors(files, [_mapped(file) for file in files]))
    pairs = EmbeddingPairs(root, names, sides)
    # without the folder's name, which may hold digits (clip14, e5)
    numbers = [
        {_numbers(file.stem.removeprefix(name)) for file in side.files} for name, side in zip(names, sides, strict=True)
    ]
    if lacking := numbers[0] ^ numbers[1]:
        parts = ", ".join(sorted("_".join(map(str, number)) for number in lacking))
        raise UserError(f"data.root={root}: only one of {' and '.join(names)} has part {parts}; parts must be pairs")
    return pairs


def _numbered(folder: Path, pattern: str) -> list[Path]:
    """Return files in the order of the numbers in their names: 10 after 9."""
    return sorted(folder.glob(pattern), key=lambda file: (_numbers(file.stem), file.name))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text)) or (0,)


def _mapped(file: Path) -> Array:
    try:
        array: Array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:  # EOFError: an empty file
        raise UserError(f"{file} is no array of numbers ({one_line(error)})") from error
    return array


def _array(archive: Path, name: str) -> Array:
    """Map an array of an .npz file, which stores it uncompressed.

    Raises UserError: the file is corrupt, or has no such array or a compressed one.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = {member.filename.removesuffix(".npy"): member for member in opened.infolist()}
            if name not in members:
                raise UserError(f"{archive} has no array {name}; allowed: {', '.join(members)}")
            member = members[name]
            if member.compress_type != zipfile.ZIP_STORED:
                raise UserError(f"{archive}: {name} is compressed; write it with numpy.savez instead")
        with archive.open("rb") as file:
            file.seek(member.header_offset + 26)
            lengths = np.frombuffer(file.read(4), "<u2")  # of the name and of the extra field, before the content
            file.seek(member.header_offset + 30 + int(lengths.sum()))
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            if dtype.hasobject:
                raise UserError(f"{archive}: {name} holds objects, which are not loaded")
            return np.memmap(archive, dtype, "r", file.tell(), shape, "F" if fortran else "C")
    except UserError:
        raise
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{archive} is no .npz file ({one_line(error)})") from error


def _parquet(file: Path) -> Any:
    import pyarrow.parquet as parquet  # here, because few sources are embeddings

    try:
        return parquet.ParquetFile(file)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise UserError(f"{file} is no parquet file ({one_line(error)})") from error


def write(folder: Path, vectors: Sequence[Callable[[Array], Array]], metadata: dict[str, list[str]]) -> None:
    """Write a new folder in clip-retrieval's layout, in parts of `PART` rows.

    Args:
        vectors: functions of row numbers to the vectors [b, width] of images and of texts.
        metadata: column -> a text for each row; what UTF-8 cannot hold becomes "?".
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    count = len(metadata[CAPTION])
    with new_folder(folder) as temporary:
        for name in (*DEFAULT_NAMES, METADATA):
            (temporary / name).mkdir()
        for part, first in enumerate(range(0, count, PART)):
            rows = np.arange(first, min(first + PART, count))
            for name, of_rows in zip(DEFAULT_NAMES, vectors, strict=True):
                np.save(temporary / name / f"{name}_{part}.npy", of_rows(rows))
            table = pa.table({name: [*map(plain, texts[first : first + PART])] for name, texts in metadata.items()})
            parquet.write_table(table, temporary / METADATA / f"{METADATA}_{part}.parquet")
