"""Image-caption pairs in the layouts of training data.

csv:FILE, tsv:FILE    a table with a header line; image paths are absolute or relative to the table's folder
hf:PLACE[@SPLIT]      a data set of Hugging Face `datasets`: a local folder, or a repository of the hub
held_out:RUN          the pairs that the run directory RUN holds out of training (data.held_out)
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL.Image import Image

from clipx.config.data_schema import DataConfig
from clipx.data.preprocess.captions import stripped
from clipx.data.preprocess.images import BadSample, decode
from clipx.data.sampler import split_held_out
from clipx.data.sources import files
from clipx.data.sources.base import PairSource
from clipx.data.sources.hf import HFPairs
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from clipx.run import directory
from clipx.utils.files import cache_home, content_hash, write_text
from clipx.utils.progress import ProgressBar
from evaluation.datasets.images import FileImages, Images
from evaluation.datasets.kinds import Captioned
from evaluation.types import Settings

HELD_OUT = "held_out"
SPLITS = ("test", "validation", "val", "train")  # hf:PLACE without @SPLIT uses the first that exists


class SourceImages(Images):
    """Images of the samples `ids` of a source of pairs."""

    def __init__(self, spec: str, source: PairSource, ids: list[int]) -> None:
        super().__init__(len(ids), content_hash([source.fingerprint, *source.image_sizes(), ids]))
        self.spec = spec
        self.source = source
        self.ids = ids

    def at(self, index: int) -> Image:
        sample_id = self.ids[index]
        try:
            return decode(self.source.image(sample_id))
        except BadSample as error:
            raise UserError(f"datasets={self.spec}: {self.source.where(sample_id)}: {error}") from error


def open_table(spec: str, path: Path, settings: Settings) -> Captioned:
    """Open csv:FILE or tsv:FILE; rows with the same image path hold the captions of one image.

    Raises UserError: the file or a column is missing, a row is incomplete, or an image file is missing.
    """
    if not path.is_file():
        raise UserError(f"datasets={spec}: no file {path}")
    config = source_config(settings, source=spec.partition(":")[0])
    with _columns_of_eval():
        pairs = files.table(path.parent, path, config, {"csv": ",", "tsv": "\t"}[config.source])
    if pairs.problems:
        raise UserError(f"datasets={spec}: {pairs.problems[0]}")
    paths = [path.parent / pairs.where(i) for i in range(len(pairs))]
    captions = _all_captions(spec, pairs)
    return Captioned(spec, path.stem, "all", FileImages(spec, path.parent, paths), captions, settings)


def open_rows(spec: str, place: Path, short: str, split: str, settings: Settings) -> Captioned:
    """Open a local folder of Hugging Face `datasets`; an empty `split` selects the first of SPLITS that exists.

    Raises UserError: the folder is not a data set, the split or a column is missing, or a row has no caption.
    """
    split = split or _split(spec, place)
    with _columns_of_eval():
        pairs = HFPairs(source_config(settings, source="hf", root=str(place), split=split), place)
    return Captioned(
        spec, short, split, SourceImages(spec, pairs, [*range(len(pairs))]), _all_captions(spec, pairs), settings
    )


def open_held_out(spec: str, run: Path, settings: Settings) -> Captioned:
    """Open the held-out pairs of a run. Pairs that cannot be decoded are left out, as in training.

    Raises UserError: the run holds out no pairs, its data source has no random access, or no held-out pair is usable.
    """
    data = directory.load_config(run).data
    if not data.held_out:
        raise UserError(f"datasets={HELD_OUT} needs a run with held-out pairs, but {run} has data.held_out=0.0")
    source = open_pair_source(data)
    image_of = source.image_of()
    _, ids = split_held_out(len(source), data.held_out, image_of)
    captions: dict[int, list[str]] = {}  # first sample of an image -> captions
    first_of: dict[int, int] = {}  # image -> its first sample
    for i in _usable(source, [int(i) for i in ids]):
        first = first_of.setdefault(i if image_of is None else int(image_of[i]), i)
        captions.setdefault(first, []).extend(_captions(source, i))
    if not captions:
        raise UserError(f"datasets={spec}: none of the {len(ids)} held-out pairs is usable")
    images = SourceImages(spec, source, [*captions])
    return Captioned(spec, f"{data.name}/{HELD_OUT}", HELD_OUT, images, [*captions.values()], settings)


def _usable(source: PairSource, ids: list[int]) -> list[int]:
    """Return the samples that can be decoded. This reads every image, so a file in the cache stores the list."""
    key = [source.fingerprint, source.image_sizes(), source.draws_caption, ids]
    cache = cache_home() / HELD_OUT / f"{content_hash(key)}.json"
    if cache.is_file():
        found: list[int] = json.loads(cache.read_text())
        return found
    good = []
    with ProgressBar() as progress:
        progress.start("checking held-out pairs", len(ids))
        for i in ids:
            try:
                _captions(source, i)
                decode(source.image(i))
                good.append(i)
            except BadSample:
                pass
            progress.advance(1)
    write_text(cache, json.dumps(good))
    return good


def _captions(source: PairSource, sample_id: int) -> list[str]:
    """Return the captions that training may draw. Raises BadSample if a caption is unusable."""
    captions = source.captions(sample_id)
    return [stripped(caption) for caption in (captions if source.draws_caption else captions[:1])]


def source_config(settings: Settings, source: str, root: str | None = None, split: str = "train") -> DataConfig:
    """Return the settings with which a source of `clipx.data` reads evaluation pairs and keeps all their captions."""
    return DataConfig(
        name="evaluation",
        source=source,
        root=root,
        split=split,
        captions="random",  # keeps all captions
        image_column=settings.image_column,
        caption_column=settings.caption_column,
    )


@contextmanager
def _columns_of_eval() -> Iterator[None]:
    """Name the columns in a UserError as `clipx eval` does: caption_column, in training data.caption_column."""
    try:
        yield
    except UserError as error:
        raise UserError(re.sub(r"\bdata\.(image|caption)_column\b", r"\1_column", str(error))) from error


def _all_captions(spec: str, pairs: PairSource) -> list[list[str]]:
    try:
        return [_captions(pairs, i) for i in range(len(pairs))]
    except BadSample as error:
        raise UserError(f"datasets={spec}: {error}") from error


def _split(spec: str, place: Path) -> str:
    import datasets

    if (place / "state.json").is_file():  # a single split, saved with save_to_disk
        return "all"
    try:
        if (place / "dataset_dict.json").is_file():
            known = json.loads((place / "dataset_dict.json").read_text())["splits"]
        else:
            known = datasets.get_dataset_split_names(str(place))
    except Exception as error:  # dataset builders raise many types
        raise UserError(f"datasets={spec}: {place} is not a data set of Hugging Face `datasets`") from error
    found = next((split for split in SPLITS if split in known), None)
    if found is None:
        raise UserError(
            f"datasets={spec}: no split {', '.join(SPLITS)}; write {spec}@SPLIT with one of {', '.join(known)}"
        )
    return found
