"""Pairs from image files: COCO annotations, Karpathy's splits, CSV and TSV tables, and folders of images."""

import csv
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clipx.config.schema import DataConfig
from clipx.data.preprocess.images import read_image
from clipx.data.sources.base import PairSource, evenly_spaced, stamp_of
from clipx.errors import UserError, prefixed
from clipx.utils.files import HIDDEN, expanded
from clipx.utils.registry import lookup, suggest
from clipx.utils.trust import load_json

Row = tuple[str, str]  # path of an image (absolute, or below the folder of images), caption
ImageCaptions = tuple[str, list[str]]  # path of an image below the folder of images, its captions
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")  # of image files in a folder
FOLDERS = ("", "images", "Images", "flickr30k-images", "Flicker8k_Dataset", "Flickr8k_Dataset")  # usual image folders
# image files that are not read; each is reported
UNREAD = (".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic", ".heif", ".jfif", ".jpe", ".jp2", ".jxl")
NO_CLASSES = {  # folders that hold images, but are no classes
    *("image", "images", "img", "imgs", "photos", "jpegimages", "caption", "captions", "text", "labels", "annotations"),
    *("train", "training", "test", "testing", "val", "valid", "validation", "dev"),
}
DELIMITERS = ";|\t,"  # tried if a table's header lacks the usual one
OPEN_CLIP = {"image": "filepath", "caption": "title"}  # our column names -> those that open_clip reads by default
csv.field_size_limit(2**31 - 1)  # with the default, a caption above 128 KiB makes the whole file unreadable


class PackedTexts:
    """A list of texts in two arrays, shared by all loader processes.

    A list of Python strings would be copied into every process, because reading a string changes its reference count.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
        self._data: NDArray[np.uint8] = np.frombuffer(b"".join(encoded), np.uint8)
        self._ends: NDArray[np.int64] = np.cumsum([0, *map(len, encoded)])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:
        begin, end = self._ends[index], self._ends[index + 1]
        return self._data[begin:end].tobytes().decode("utf-8", "surrogatepass")

    def tobytes(self) -> bytes:
        """Return bytes that identify the list, to compute a hash."""
        return self._data.tobytes() + self._ends.tobytes()


def size_of(path: Path) -> int:
    """Return the bytes of a file, -1 if it cannot be read."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):  # ValueError: a NUL byte in the name
        return -1


class FilePairs(PairSource):
    """Pairs from rows of (image file, caption)."""

    draws_caption = True  # among the captions kept; with captions="first" or "each" a sample keeps only one

    def __init__(self, folder: Path, rows: list[Row], captions: str, problems: list[str]) -> None:
        """Build samples from rows whose image paths are absolute or below `folder`.

        `problems`: messages about rows that were left out.

        captions="each" gives one sample per row. The other values give one sample per image: "first" with its first
        caption, "random" with a random one of its captions in each epoch.
        """
        self.folder = folder
        self.problems = problems
        captions_kept = lookup({"each": 1, "random": None, "first": 1}, captions, "data.captions")  # None: all
        used = rows if captions_kept is None else _without_empty(rows)  # empty ones are never drawn
        if captions == "each":
            samples = [[row] for row in used]
        else:
            of_images: dict[str, list[Row]] = {}  # in the order of their first rows
            for row in used:
                of_images.setdefault(row[0], []).append(row)
            samples = [of_image[:captions_kept] for of_image in of_images.values()]
        self._names = PackedTexts(sample[0][0] for sample in samples)
        self._captions = PackedTexts(caption for sample in samples for _, caption in sample)
        self._starts: NDArray[np.int64] = np.cumsum([0, *map(len, samples)])  # index of each sample's first caption
        digest = hashlib.sha256(self._names.tobytes() + self._captions.tobytes() + self._starts.tobytes())
        self.fingerprint = f"{len(self)}:{digest.hexdigest()[:16]}"

    def __len__(self) -> int:
        return len(self._names)

    def where(self, sample_id: int) -> str:
        return self._names[sample_id]

    def image(self, sample_id: int) -> bytes:
        return read_image(self.folder / self._names[sample_id])

    def captions(self, sample_id: int) -> list[str]:
        return [self._captions[i] for i in range(self._starts[sample_id], self._starts[sample_id + 1])]

    def image_sizes(self) -> list[int]:
        return [size_of(self.folder / self._names[i]) for i in evenly_spaced(len(self))]

    def stamp(self) -> str:
        return stamp_of(self.folder / self._names[i] for i in range(len(self)))

    def image_of(self) -> NDArray[np.int32] | None:
        numbers: dict[str, int] = {}
        of_each = (numbers.setdefault(self._names[i], len(numbers)) for i in range(len(self)))
        images = np.fromiter(of_each, np.int32, len(self))
        return images if len(numbers) < len(self) else None


def coco(folder: Path, annotations: Path, config: DataConfig) -> FilePairs:
    """Return the pairs of a captions_*.json in COCO's format, with the images in `folder`.

    Raises UserError if the file contains no caption annotations.
    """
    with prefixed("data.annotations"):
        names, captions = read_coco(annotations)
    rows = [(names[i], caption) for i, caption in captions if i in names]
    unknown = Counter(i for i, _ in captions if i not in names)
    problems = [f"{annotations.name}: no image {i} for {n} captions" for i, n in unknown.items()]
    return downloaded(folder, annotations, rows, config.captions, problems)


def karpathy(folder: Path, annotations: Path, config: DataConfig) -> FilePairs:
    """Return the training pairs of a JSON in Karpathy's format (Flickr30k, MSCOCO), with the images in `folder`.

    These are the splits `train` and `restval`. Raises UserError if the JSON has another format.
    """
    with prefixed("data.annotations"):
        _, images = read_karpathy(annotations, ("train", "restval"))
    rows = [(name, caption) for name, of_image in images for caption in of_image]
    return downloaded(folder, annotations, rows, config.captions, [])


def downloaded(folder: Path, listed: Path, rows: list[Row], captions: str, problems: list[str]) -> FilePairs:
    """Return the pairs that the downloaded file `listed` names, without images outside `folder`.

    A table, written by the user, may name any path. Raises UserError: no pair is left.
    """
    outside = {name for name, _ in rows if Path(name).is_absolute() or ".." in Path(name).parts}
    problems = problems + [f"{listed.name}: {name} is outside {folder}, not read" for name in sorted(outside)]
    return _file_pairs(folder, listed, [row for row in rows if row[0] not in outside], captions, problems)


def read_coco(path: Path) -> tuple[dict[int, str], list[tuple[int, str]]]:
    """Return COCO's image id -> file name, and (image id, caption) for each caption, in the order of the file.

    Raises UserError: the file is missing, or a list or a field is missing or of another type.
    """
    content = "COCO's caption annotations (captions_*.json)"
    value = read_json(path, content)
    images = entries(path, value, "images", {"id": int, "file_name": str}, content)
    annotations = entries(path, value, "annotations", {"image_id": int, "caption": str}, content)
    names: dict[int, str] = {}
    for one in images:
        if names.setdefault(one["id"], one["file_name"]) != one["file_name"]:
            raise UserError(f'{path}: "images" has the id {one["id"]} for {names[one["id"]]} and {one["file_name"]}')
    return names, [(one["image_id"], one["caption"]) for one in annotations]


def read_karpathy(path: Path, splits: tuple[str, ...]) -> tuple[str, list[ImageCaptions]]:
    """Return the data set's name and the images of `splits` in Karpathy's JSON (dataset_*.json).

    Raises UserError: the file is missing or has none of the splits, or a list or a field is missing or of another type.
    """
    content = "Karpathy's splits (dataset_*.json)"
    value = read_json(path, content)
    fields = {"split": str, "filename": str, "sentences": list}
    listed = entries(path, value, "images", fields, content)
    chosen = [one for one in listed if one["split"] in splits]
    if not chosen:
        known = ", ".join(sorted({one["split"] for one in listed})) or "none"
        raise UserError(f"{path} has no {' or '.join(splits)} split; it has {known}")
    images = []
    for one in chosen:
        sentences = entries(path, one, "sentences", {"raw": str}, content)
        name = str(Path(str(one.get("filepath", ""))) / one["filename"])
        images.append((name, [sentence["raw"] for sentence in sentences]))
    return str(value.get("dataset", path.stem)).removeprefix("dataset_"), images


def find_images(folder: Path, name: str) -> Path:
    """Return the folder of images that holds the file `name`: `folder` itself, or one of FOLDERS in it.

    Raises UserError: none of them does.
    """
    found = next((folder / place for place in FOLDERS if (folder / place / name).is_file()), None)
    if found is None:
        raise UserError(f"no image {name} in {folder} or its folders {', '.join(FOLDERS[1:])}")
    return found


def folder(images: Path, config: DataConfig) -> FilePairs:
    """Return the pairs of a folder of images, whose captions are the lines of a text file beside each: 7.jpg, 7.txt.

    If no image has such a file, an image has the caption "a photo of a CLASS", with the name of its folder
    (torchvision's ImageFolder). Sub-folders are read, hidden files are not.

    Raises UserError: no image has a caption; there is one folder, or one is named as folders of splits are.
    """
    if not images.is_dir():
        raise UserError(f"data.root={config.root}: no folder {images}")
    paths = files_below(images)
    if not paths:
        raise UserError(f"{images} has no images ({', '.join(SUFFIXES)})")
    texts = {path: text for path in paths if (text := text_beside(path))}
    if not texts:
        _refuse_other_folders(images, paths)
    unread = files_below(images, UNREAD)
    rows, problems = list[Row](), [f"{path.relative_to(images)}: {path.suffix} is not read" for path in unread]
    for path in paths:
        name = path.relative_to(images)
        if path in texts:
            lines = texts[path].read_bytes().decode("utf-8-sig", "replace").splitlines()
            # a file in UTF-16, as PowerShell writes it, has NUL bytes
            captions = [line.strip() for line in lines if line.strip() and not {"\ufffd", "\0"} & {*line}]
        else:
            is_class = not texts and len(name.parts) > 1
            captions = [f"a photo of a {name.parts[0].replace('_', ' ')}"] if is_class else []
        rows += [(str(name), caption) for caption in captions]
        beside = path.with_suffix(".txt").name
        reason = f"{beside} is empty or not in UTF-8" if path in texts else f"no {beside}, no folder of its class"
        problems += [] if captions else [f"{name} has no caption ({reason})"]
    return _file_pairs(images, images, rows, config.captions, problems)


def check_root(source: str, folder: str | None) -> None:
    """Raise UserError if data.root must be a folder and is none. Loads no torch."""
    in_folder = source in ("folder", "shards", "coco", "karpathy", "csv", "tsv", "embeddings")
    if in_folder and folder and not (root := expanded(folder)).is_dir():
        raise UserError(f"data.root={folder}: no folder {root}")


def files_below(folder: Path, endings: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """Return the images, or other files, below a folder in sorted order, without hidden files and HIDDEN folders.

    Linked folders are read. Raises UserError: a folder cannot be read, or a link leads to nothing or in a circle.
    """
    found = list[Path]()
    for place, folders, names in os.walk(folder, onerror=_unreadable, followlinks=True):
        folders[:] = [name for name in folders if name[0] != "." and name not in HIDDEN]
        maybe_folders = (*folders, *(name for name in names if "." not in name))
        for link in (path for name in maybe_folders if (path := Path(place, name)).is_symlink()):
            if not link.exists():
                raise UserError(f"{link} leads to nothing")
            if link.resolve() in (Path(place).resolve(), *Path(place).resolve().parents):
                raise UserError(f"{link} leads to a folder that holds it")
        found += [Path(place, name) for name in names if name[0] != "." and name.lower().endswith(endings)]
    return sorted(found)


def _unreadable(error: OSError) -> None:
    raise UserError(f"{error.filename} cannot be read ({error.strerror})") from error


def text_beside(image: Path) -> Path | None:
    """Return the text file with the captions of an image, 7.txt for 7.jpg; None if it has none."""
    return next((text for suffix in (".txt", ".TXT") if (text := image.with_suffix(suffix)).is_file()), None)


def _refuse_other_folders(images: Path, paths: list[Path]) -> None:
    """Raise UserError if the folders of images do not look like classes: their names would become captions."""
    names = sorted({parts[0] for path in paths if len(parts := path.relative_to(images).parts) > 1})
    others = [name for name in names if name.lower() in NO_CLASSES]
    if len(names) < 2 or others:
        found = "it has no folders of classes" if not names else f"one folder, {names[0]}, is no set of classes"
        found = f"its folder {others[0]} is no class" if others else found
        raise UserError(
            f"{images}: no image has captions beside it ({paths[0].with_suffix('.txt').name} for {paths[0].name}), and "
            f"{found}; other layouts: data=csv, coco, karpathy, flickr8k"
        )


def read_json(path: Path, content: str, kind: type = dict) -> Any:
    """Return the object in a JSON file, or the list if `kind` is list; `content` describes the file in messages.

    Raises UserError: the file is missing or corrupt, or holds a value of another type or an empty list.
    """
    text = read_text(path, content)
    try:
        value = load_json(text)
    except ValueError:
        value = None
    if not isinstance(value, kind) or value == []:
        raise UserError(f"{path} is corrupt; it should hold {content}")
    return value


def read_text(path: Path, content: str) -> str:
    """Return the text of a file. Raises UserError: the file is missing or not UTF-8; the message has `content`."""
    if not path.is_file():
        raise UserError(f"{path} is missing; it should hold {content}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8; it should hold {content}") from None


def entries(
    path: Path, value: dict[str, Any], key: str, fields: Mapping[str, type], content: str
) -> list[dict[str, Any]]:
    """Return the list `key` of the JSON object `value`; each entry must have `fields` (name -> type).

    Raises UserError: the list or a field is missing or of another type; the message names the file and the field.
    """
    found = value.get(key)
    if not isinstance(found, list):
        raise UserError(f'{path} has no list "{key}"; it should hold {content}')
    for number, entry in enumerate(found):
        for name, kind in fields.items():
            if not isinstance(entry, dict) or not isinstance(entry.get(name), kind):
                raise UserError(f'{path}: "{key}" number {number} has no "{name}" ({kind.__name__})')
    return found


def table(folder: Path, path: Path, config: DataConfig, delimiter: str) -> FilePairs:
    """Return the pairs of a text table with a header line and columns data.image_column and data.caption_column.

    If its header lacks `delimiter`, the first of DELIMITERS in it is taken.

    Raises UserError if a column is missing, the file is not UTF-8, or it contains no pairs.
    """
    problems: list[str] = []
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = file.readline()
    delimiter = next((sign for sign in (delimiter, *DELIMITERS) if sign in header), delimiter)
    if delimiter == "\t" and (rows := _unquoted(path, config, problems)):
        return _file_pairs(folder, path, rows, config.captions, problems)
    rows, last = list[Row](), 1  # last: the line in which the last row ended
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            # strict, because otherwise a quote without its end would swallow the rows that follow
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for row in _rows(reader, path.name, config, problems):
                rows.append(row)
                last = reader.line_num
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a UTF-8 text table ({error})") from error
    except csv.Error as error:
        raise UserError(
            f"{path}: line {last + 1} or later: {error}; a field that starts with a quote ends with one, and quotes in "
            "it are doubled"
        ) from error
    return _file_pairs(folder, path, rows, config.captions, problems)


def _unquoted(path: Path, config: DataConfig, problems: list[str]) -> list[Row]:
    """Return the rows of a table separated by tabs whose quotes belong to the captions; [] for other tables.

    A quote that opens a field of one row and closes in a later row would otherwise swallow the rows between them.
    """
    with suppress(UnicodeDecodeError), path.open(newline="", encoding="utf-8-sig") as file:
        tabs = file.readline().count("\t")
        try:
            rows = csv.reader(file, delimiter="\t", strict=True)
            after_break = (line for row in rows for field in row for line in field.split("\n")[1:])
            is_quoted = all(line.count("\t") != tabs for line in after_break)
        except csv.Error:  # such as '"The ball" by an artist', unless the table has line breaks in quotes
            file.seek(0)
            is_quoted = any(line.strip() and line.count("\t") != tabs for line in file)
        file.seek(0)
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [] if is_quoted else list(_rows(lines, path.name, config, problems))
    return []


def _rows(lines: Iterator[list[str]], name: str, config: DataConfig, problems: list[str]) -> Iterator[Row]:
    header, found = [column.strip() for column in next(lines, [])], []
    for key in ("image_column", "caption_column"):
        column = getattr(config, key)
        if column not in header and OPEN_CLIP.get(column) in header:
            column = OPEN_CLIP[column]
        if column not in header:
            raise UserError(f"data.{key}={column} is not a column of {name}; {suggest(column, header)}")
        if header.count(column) > 1:
            raise UserError(f"{name} has the column {column} twice")
        found.append(header.index(column))
    image, caption = found
    for number, line in enumerate(lines, start=2):
        if len(line) == len(header):
            place = line[image].strip()  # as the header's; ./a.jpg and a.jpg are one image
            yield place if "://" in place or not place else os.path.normpath(place), line[caption]
        elif line:
            problems.append(f"{name}: row {number} has {len(line)} fields, not {len(header)}")


def _without_empty(rows: list[Row]) -> list[Row]:
    """Return the rows without empty captions, except those of images that have no other caption."""
    captioned = {name for name, caption in rows if caption.strip()}
    return [(name, caption) for name, caption in rows if caption.strip() or name not in captioned]


def _file_pairs(folder: Path, path: Path, rows: list[Row], captions: str, problems: list[str]) -> FilePairs:
    if not rows:
        raise UserError("; ".join([f"{path} holds no pairs", *problems[:3]]))
    return FilePairs(folder, rows, captions, problems)
