"""Open an evaluation set from its specification, `NAME:ROOT` or `LAYOUT:PLACE`."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import or_
from pathlib import Path

from clipx.config.schema import DataConfig
from clipx.data.sampler import split_held_out
from clipx.data.sources.files import FilePairs, size_of
from clipx.data.sources.opening import open_source
from clipx.errors import UserError, prefixed
from clipx.run.checkpoint import file_sha256
from clipx.utils.files import expanded
from clipx.utils.registry import lookup, one_of, suggest
from evaluation.datasets import prompts
from evaluation.datasets.captioned import (
    HELD_OUT,
    open_coco,
    open_embedded,
    open_held_out,
    open_hub,
    open_karpathy,
    open_multi30k,
    open_table,
    open_xm3600,
    open_xtd10,
)
from evaluation.datasets.files import FileImages, Images, SomeImages, SourceImages
from evaluation.datasets.folders import open_folder
from evaluation.datasets.kinds import AnyDataset, Captioned
from evaluation.datasets.labelled import open_clevr
from evaluation.datasets.named import NAMED
from evaluation.datasets.shards import open_captions, open_pairs, open_wds
from evaluation.datasets.swaps import open_swaps
from evaluation.types import DEFAULTS, Settings

LAYOUTS: dict[str, Callable[[str, Path, Settings], AnyDataset]] = {
    "wds": open_wds,
    "hf": open_hub,
    "folder": open_folder,
    "captions": open_captions,
    "embeddings": open_embedded,
    "pairs": open_pairs,
    "swaps": open_swaps,
    "karpathy": open_karpathy,
    "coco": open_coco,
    "xtd10": open_xtd10,
    "xm3600": open_xm3600,
    "multi30k": open_multi30k,
    "clevr": open_clevr,
    "csv": open_table,
    "tsv": open_table,
    HELD_OUT: open_held_out,
}


OF_FILES = ("folder", "coco", "karpathy", "csv", "tsv")  # values of data.source that read image files


def check_layout(spec: str, key: str) -> None:
    """Raise UserError if the layout or name of `spec`, the value of the setting `key`, is unknown."""
    one_of(spec.partition(":")[0], [*LAYOUTS, *NAMED], key)


def open_dataset(spec: str, settings: Settings = DEFAULTS) -> AnyDataset:
    """Open `LAYOUT:PLACE` or `NAME:ROOT`, where the folder ROOT holds all named sets.

    Raises UserError: unknown layout, name or prompts; or a missing file, split, caption or class name.
    """
    prompts.check_choice(settings.prompts)
    check_name(spec)
    layout, _, place = spec.partition(":")
    with prefixed(f"datasets={spec}"):
        return _layouts()[layout](spec, expanded(place), settings)


def check_name(spec: str) -> None:
    """Raise UserError if `spec`, an entry of datasets=, is not of the form `LAYOUT:PLACE` or has an unknown layout."""
    layout, colon, place = spec.partition(":")
    if not colon and expanded(spec).is_dir():
        raise UserError(f"datasets={spec} has no layout: write folder:{spec}, or another layout of `clipx ls data`")
    if not (colon and place):
        known = suggest(layout, _layouts())
        raise UserError(f"datasets={spec}: expected a known name or LAYOUT:PLACE, such as folder:DIR; {known}")
    lookup(_layouts(), layout, "datasets layout")


def _layouts() -> dict[str, Callable[[str, Path, Settings], AnyDataset]]:
    """Return LAYOUTS, to which plug-ins add, and the named sets."""
    return LAYOUTS | {name: partial(entry.open, name) for name, entry in NAMED.items()}


def locate(spec: str, root: str, run: Path | None = None) -> str:
    """Return `NAME:root` for a named set, `held_out:run` for `held_out`, any other specification unchanged.

    Raises UserError: `spec` is `held_out` and `run` is None.
    """
    if spec != HELD_OUT:
        return f"{spec}:{root}" if spec in NAMED else spec
    if run is None:
        raise UserError(f"datasets={HELD_OUT} needs a run; for published weights write {HELD_OUT}:RUN")
    return f"{HELD_OUT}:{run}"


def is_training_data(spec: str, data: DataConfig) -> bool:
    """Return True if a set `LAYOUT:PLACE` is the folder, the file or the split of a run's training pairs."""
    kind, _, place = spec.partition(":")
    if data.root is None or not place or kind in NAMED or kind in ("karpathy", HELD_OUT):  # they open test splits
        return False
    root = expanded(data.root)
    pairs = root / (data.annotations or data.split)
    places = [pairs] if size_of(pairs) >= 0 else [pairs, root]
    if kind == "hf" and (root / "state.json").is_file():  # a single split, whatever its name
        place = place.partition("@")[0]
    elif kind == "hf":  # a test split, without @SPLIT
        places = [Path(f"{root}@{data.split}")]
    return expanded(place).resolve() in [one.resolve() for one in places]


def training_copies(dataset: AnyDataset, data: DataConfig) -> int:
    """Return the number of images of a set with captions that are copies of an image that a run trains on.

    A copy has the same bytes, or as an image that was saved again the same two or more captions, which one training
    image alone has. Only image files are looked at: 0 if those of the set or of the run are elsewhere, or if the run's
    cannot be read.
    """
    if not isinstance(dataset, Captioned) or not (scored := _files(dataset.images(dataset.splits[0]))):
        return 0
    try:
        source = open_source(data) if data.source in OF_FILES else None
    except (UserError, OSError):
        return 0
    if not isinstance(source, FilePairs):
        return 0
    train, _ = split_held_out(len(source), data.held_out, source.image_of())
    trained = dict.fromkeys(source.folder / source.where(int(i)) for i in train)
    sizes = {*map(size_of, trained)} & {*map(size_of, scored)}  # only files of equal size are read
    contents = {_content(path) for path in trained if size_of(path) in sizes} - {""}
    count_of = Counter(frozenset(source.captions(int(i))) for i in train)
    same_text = [len(of) > 1 and count_of[frozenset(of)] == 1 for of in dataset.captions_of_images()]
    same = [size_of(path) in sizes and _content(path) in contents for path in scored]
    return sum(map(or_, same, same_text))


def _files(images: Images) -> list[Path]:
    """Return the path of each image file; [] if the images are not in files of their own."""
    if isinstance(images, SomeImages):
        found = _files(images.images)
        return [found[i] for i in images.chosen] if found else []
    if isinstance(images, SourceImages) and isinstance(images.source, FilePairs):
        return [images.source.folder / images.source.where(i) for i in images.ids]
    return [*map(Path, images.paths)] if isinstance(images, FileImages) else []


def _content(path: Path) -> str:
    """Return a hash of a file, "" if it cannot be read."""
    try:
        return file_sha256(path)
    except OSError:
        return ""


def open_usable(specs: list[str], settings: Settings = DEFAULTS) -> tuple[list[AnyDataset], dict[str, str]]:
    """Return the data sets that can be opened, and specification -> problem of the others.

    Of two sets with the same short name, the second cannot.
    """
    datasets: dict[str, AnyDataset] = {}
    problems: dict[str, str] = {}
    for spec in dict.fromkeys(specs):
        try:
            dataset = open_dataset(spec, settings)
        except UserError as error:
            problems[spec] = str(error)
            continue
        other = datasets.setdefault(dataset.short, dataset)
        if other is not dataset:
            name = repr(dataset.short)
            problems[spec] = f"datasets={other.name} and {spec} are both called {name} in tables: rename one"
    return list(datasets.values()), problems
