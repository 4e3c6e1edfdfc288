"""Layouts of images with captions.

coco:FILE             COCO's annotations/captions_SPLIT.json; the image folder SPLIT is next to annotations/
karpathy:FILE         the test split of Karpathy's JSON: MSCOCO, Flickr30k, Flickr8k
csv:FILE, tsv:FILE    a table with a header line; image paths are absolute or relative to the table's folder
hf:PLACE[@SPLIT]      a local folder or a repository of the Hugging Face hub: in CLIP-benchmark's layout (shards.py), or
                      image-caption pairs of Hugging Face `datasets`
embeddings:FOLDER     vectors made elsewhere, as for data=embeddings
held_out:RUN          the pairs that the run directory RUN holds out of training (data.held_out)
xtd10:FILE            XTD10's captions in one language; COCO's images in mscoco/ next to the repository
xm3600:FOLDER/LANGUAGE  Crossmodal-3600's captions in one language
multi30k:FOLDER/LANGUAGE  Multi30k's captions in one language; Flickr30k's images in flickr30k/ next to the repository
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from clipx import distributed
from clipx.config.schema import DataConfig
from clipx.data.preprocess.captions import stripped, usable
from clipx.data.preprocess.images import BadSample, decode
from clipx.data.sampler import split_held_out
from clipx.data.sources import files
from clipx.data.sources.base import PairSource
from clipx.data.sources.embeddings import DEFAULT_NAMES, EmbeddingPairs, open_embeddings
from clipx.data.sources.files import read_coco, read_karpathy, read_text
from clipx.data.sources.hf import HFPairs
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from clipx.run.folder import RunFolder
from clipx.utils.files import cache_home, content_hash, expanded, write_text
from clipx.utils.hub import download_error, quiet_hub
from clipx.utils.registry import one_of
from clipx.utils.terminal import ProgressBar
from clipx.utils.trust import load_json
from evaluation.datasets.files import FileImages, SourceImages, text_fields
from evaluation.datasets.kinds import Captioned, Embedded, Labelled
from evaluation.datasets.shards import open_wds
from evaluation.types import DEFAULTS, Settings

TEST = "test"  # Karpathy's split that is scored
HELD_OUT = "held_out"
LIST_VERSION = 2  # of cached lists of held-out samples; increase it when other samples become usable
SPLITS = ("test", "validation", "val", "train")  # hf:PLACE without @SPLIT uses the first that exists


def open_coco(spec: str, path: Path, settings: Settings) -> Captioned:
    """Open COCO's caption JSON at `path`; its images are in ../SPLIT.

    Raises UserError: the JSON is missing or corrupt, a caption has no image, or an image is missing or not in ../SPLIT.
    """
    names, pairs = read_coco(path)
    captions: dict[int, list[str]] = {image_id: [] for image_id in names}
    for image_id, caption in pairs:
        if image_id not in captions:
            raise UserError(f'{path}: a caption belongs to image {image_id}, which "images" lacks')
        if text := caption.strip():
            captions[image_id].append(text)
    split = path.stem.removeprefix("captions_")
    folder = path.parent.parent / split
    if not folder.is_dir():
        raise UserError(f"no image folder {folder}; the images of {path.name} belong there")
    images = FileImages(folder, [folder / name for name in names.values()])
    return Captioned(spec, f"coco/{split}", split, images, list(captions.values()), settings)


def open_karpathy(spec: str, path: Path, settings: Settings) -> Captioned:
    """Open the test split of Karpathy's JSON at `path`.

    An image is at FOLDER/`filepath`/`filename`; FOLDER is the JSON's folder or a subfolder listed in files.FOLDERS.

    Raises UserError: the JSON is missing or corrupt or has no test split, or an image is missing.
    """
    name, chosen = read_karpathy(path, (TEST,))
    captions = [[text for one in of_image if (text := one.strip())] for _, of_image in chosen]
    folder = files.find_images(path.parent, chosen[0][0])
    images = FileImages(folder, [folder / image for image, _ in chosen])
    return Captioned(spec, f"{name}/{TEST}", TEST, images, captions, settings)


def json_lines(path: Path, what: str) -> list[tuple[str, dict[str, Any]]]:
    """Return location and content of each line that is not empty. Raises UserError: no file, no line, or no JSON."""
    entries = []
    for number, line in enumerate(read_text(path, what).split("\n"), 1):
        try:
            if line.strip():
                entries.append((f"{path}: line {number}", load_json(line)))
        except ValueError:
            raise UserError(f"{path}: line {number} is not JSON") from None
    if not entries:
        raise UserError(f"{path} has no examples")
    return entries


def open_xtd10(spec: str, path: Path, settings: Settings) -> Captioned:
    """Open XTD10 (Aggarwal and Kale 2020) in one language: a caption in each line of `path`, COCO's images in mscoco/.

    `path` is FOLDER/{XTD10,MIC,STAIR}/test_1kcaptions_LANGUAGE.txt, FOLDER the repository; mscoco/ is next to it.

    Raises UserError: a file is missing, or the numbers of captions and images differ.
    """
    folder = path.parent.parent
    names, captions = _line_by_line(folder / "XTD10" / "test_image_names.txt", [path], "XTD10's")
    coco = folder.parent / "mscoco"
    images = FileImages(coco, [coco / ("train2014" if "train2014" in name else "val2014") / name for name in names])
    name = f"xtd10_{path.stem.rpartition('_')[2]}"
    return Captioned(spec, name, TEST, images, captions, settings)


def open_multi30k(spec: str, place: Path, settings: Settings) -> Captioned:
    """Open Multi30k in one language (Elliott et al. 2016): the test set of 2016, 1,000 images of Flickr30k.

    `place` is FOLDER/LANGUAGE, FOLDER the repository with unpacked captions; the images are in flickr30k/ next to it.
    An image has the five captions of task 2 in English and German, the translation of task 1 in French and Czech.

    Raises UserError: another language, a file is missing, or the numbers of captions and images differ.
    """
    folder, language = place.parent / "data", one_of(place.name, ["cs", "de", "en", "fr"], "the language of multi30k")
    if language in ("en", "de"):
        names = folder / "task2" / "image_splits" / "test_2016_images.txt"
        paths = [folder / "task2" / "raw" / f"test_2016.{k}.{language}" for k in range(1, 6)]
    else:
        names = folder / "task1" / "image_splits" / "test_2016_flickr.txt"
        paths = [folder / "task1" / "raw" / f"test_2016_flickr.{language}"]
    listed, captions = _line_by_line(names, paths, "Multi30k's")
    flickr = files.find_images(place.parent.parent / "flickr30k", listed[0])
    images = FileImages(flickr, [flickr / name for name in listed])
    return Captioned(spec, f"multi30k_{language}", TEST, images, captions, settings)


def _line_by_line(names: Path, paths: list[Path], whose: str) -> tuple[list[str], list[list[str]]]:
    """Return the names of the images and the captions of each; line k of each of `paths` is for image k.

    Raises UserError: a file is missing or empty, the numbers of captions and images differ, or an image has no caption.
    """
    listed = read_text(names, f"{whose} names of images").split()
    columns = [read_text(path, f"{whose} captions").strip().split("\n") for path in paths]
    for path, column in zip(paths, columns, strict=True):
        if len(column) != len(listed):
            raise UserError(f"{path} has {len(column)} captions, {names.name} has {len(listed)} images")
    captions = [[text.strip() for text in of_image if text.strip()] for of_image in zip(*columns, strict=True)]
    if [] in captions:
        raise UserError(f"{paths[0]} has no caption of {listed[captions.index([])]}")
    return listed, captions


def open_xm3600(spec: str, place: Path, settings: Settings) -> Captioned:
    """Open Crossmodal-3600 (Thapliyal et al. 2022) in one language: captions.jsonl and images/KEY.jpg.

    `place` is FOLDER/LANGUAGE, with one of the languages that the captions name.

    Raises UserError: a file or an image is missing, or an entry has no key or no captions in the language.
    """
    folder, language = place.parent, place.name
    keys, captions = list[str](), list[list[str]]()
    for where, entry in json_lines(folder / "captions.jsonl", "XM3600's captions"):
        keys += text_fields(where, entry, ("image/key",))
        of_language = entry.get(language)
        listed = of_language.get("caption") if isinstance(of_language, dict) else None
        if not (isinstance(listed, list) and all(isinstance(text, str) for text in listed) and "".join(listed).strip()):
            raise UserError(f"{where} has no captions in {language!r}")
        captions.append([text.strip() for text in listed if text.strip()])
    images = FileImages(folder, [folder / "images" / f"{key}.jpg" for key in keys])
    return Captioned(spec, f"xm3600_{language}", TEST, images, captions, settings)


def open_table(spec: str, path: Path, settings: Settings) -> Captioned:
    """Open csv:FILE or tsv:FILE; rows with the same image path hold the captions of one image.

    Raises UserError: the file or a column is missing, a row is incomplete, or an image file is missing.
    """
    if not path.is_file():
        raise UserError(f"no file {path}")
    config = source_config(settings, source=spec.partition(":")[0])
    with _columns_of_eval():
        pairs = files.table(path.parent, path, config, {"csv": ",", "tsv": "\t"}[config.source])
    if pairs.problems:
        raise UserError(pairs.problems[0])
    images = FileImages(path.parent, [path.parent / pairs.where(i) for i in range(len(pairs))], anywhere=True)
    return Captioned(spec, path.stem, "all", images, all_captions(pairs), settings)


def open_hub(spec: str, place: Path, settings: Settings) -> Labelled | Captioned:
    """Open hf:FOLDER or hf:REPOSITORY, for pairs also with @SPLIT. Without a network, repositories come from the cache.

    Raises UserError: the repository is neither reachable nor cached (the message has the download command); the folder
    is not a data set, the split or a column is missing, or a row has no caption.
    """
    name, split = str(place), ""
    if "@" in place.name and not place.is_dir():
        name, _, split = name.rpartition("@")
    folder = Path(name) if Path(name).is_dir() else _download(name)
    short = Path(name).name
    if any(folder.glob("*/nshards.txt")):
        opened = open_wds(spec, folder, settings)
        opened.short = short  # the cache's folders are named by commit
        return opened
    split = split or _first_split(spec, folder)
    with _columns_of_eval():
        pairs = HFPairs(source_config(settings, source="hf", root=str(folder), split=split), folder)
    return Captioned(spec, short, split, SourceImages(pairs, [*range(len(pairs))]), all_captions(pairs), settings)


def open_held_out(spec: str, run: Path, settings: Settings) -> Captioned:
    """Open the held-out pairs of a run, see `held_out_pairs`."""
    folder = RunFolder(run)
    trained_on = folder.environment.get("data") if folder.checkpoints else None  # None: nothing was trained yet
    data = folder.load_config().data
    try:
        return held_out_pairs(spec, data, settings, trained_on)
    except UserError as error:
        if data.root is None or data.source == "hf" or expanded(data.root).exists():
            raise
        raise UserError(f"{error}; if it has moved, repeat the run's `clipx train` with data.root=NEW") from error


def held_out_pairs(
    spec: str, data: DataConfig, settings: Settings = DEFAULTS, trained_on: str | None = None
) -> Captioned:
    """Open the held-out pairs of a run with these data. Unusable pairs are left out, as in training.

    `trained_on`: fingerprint of the data when the run was trained.

    Raises UserError: the run holds out no pairs, its data have changed, its data source has no random access, or no
    held-out pair is usable.
    """
    if not data.held_out:
        raise UserError(f"the run holds out no pairs: it has data.held_out={data.held_out}")
    source = open_pair_source(data)
    if trained_on not in (None, source.fingerprint):
        raise UserError(
            f"the data have changed since the run was trained (fingerprint {trained_on}, now {source.fingerprint}), so "
            "pairs that it has seen may now be held out: restore the data, or score another set"
        )
    image_of = source.image_of()
    _, ids = split_held_out(len(source), data.held_out, image_of)
    if isinstance(source, EmbeddingPairs):
        return Embedded(spec, f"{data.name}/{HELD_OUT}", HELD_OUT, source, np.array(ids), settings)
    captions: dict[int, list[str]] = {}  # first sample of an image -> captions
    first_of: dict[int, int] = {}  # image -> its first sample
    kept = _usable(source, [int(i) for i in ids])
    if len(kept) < len(ids) and distributed.rank() == 0:
        print(f"{spec}: {len(ids) - len(kept)} of {len(ids)} held-out samples are unusable, left out", file=sys.stderr)
    for i in kept:
        first = first_of.setdefault(i if image_of is None else int(image_of[i]), i)
        captions.setdefault(first, []).extend(_drawable(source, i))
    if not captions:
        raise UserError(f"none of the {len(ids)} held-out pairs is usable")
    images = SourceImages(source, [*captions])
    return Captioned(spec, f"{data.name}/{HELD_OUT}", HELD_OUT, images, [*captions.values()], settings)


def open_embedded(spec: str, folder: Path, settings: Settings) -> Embedded:
    """Open embeddings made elsewhere; image_column and caption_column name the folders or arrays of the vectors.

    Raises UserError: files are missing, or are not such an embedding.
    """
    image = DEFAULT_NAMES[0] if settings.image_column == DEFAULTS.image_column else settings.image_column
    text = DEFAULT_NAMES[1] if settings.caption_column == DEFAULTS.caption_column else settings.caption_column
    source = open_embeddings(folder, (image, text))
    return Embedded(spec, folder.name, "all", source, np.arange(len(source)), settings)


def source_config(settings: Settings, source: str, root: str | None = None, split: str = "train") -> DataConfig:
    """Return the settings with which a source of `clipx.data` reads evaluation pairs and keeps all their captions."""
    return DataConfig(
        name="evaluation",
        source=source,
        root=root,
        split=split,
        captions="random",  # the only value that keeps all captions
        image_column=settings.image_column,
        caption_column=settings.caption_column,
    )


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download

    if Path(name).is_absolute():
        raise UserError(f"no folder {name}")
    try:
        with quiet_hub(fetching=True):
            return Path(snapshot_download(name, repo_type="dataset"))
    except Exception as error:  # the hub's client raises a dozen types
        raise download_error(name, f"`hf download {name} --repo-type dataset`", "give hf:FOLDER", error) from error


def _first_split(spec: str, place: Path) -> str:
    import datasets

    if (place / "state.json").is_file():  # a single split, saved with save_to_disk
        return "all"
    try:
        if (place / "dataset_dict.json").is_file():
            known = [str(name) for name in load_json((place / "dataset_dict.json").read_text())["splits"]]
        else:
            known = datasets.get_dataset_split_names(str(place))
    except Exception as error:  # dataset builders raise many types
        raise UserError(f"{place} is not a data set of Hugging Face `datasets`") from error
    found = next((split for split in SPLITS if split in known), None)
    if found is None:
        raise UserError(f"no split {', '.join(SPLITS)}; write {spec}@SPLIT with one of {', '.join(known)}")
    return found


def _usable(source: PairSource, ids: list[int]) -> list[int]:
    """Return the samples with a readable image and a caption; a file in the cache stores the list."""
    key = [LIST_VERSION, source.fingerprint, source.image_sizes(), source.draws_caption, ids]
    cache = cache_home() / HELD_OUT / f"{content_hash(key)}.json"
    if cache.is_file():
        found: list[int] = json.loads(cache.read_text())
        return found
    good = []
    with ProgressBar() as progress:
        progress.start("checking held-out pairs", len(ids))
        for i in ids:
            with suppress(BadSample):
                _drawable(source, i)
                decode(source.image(i))
                good.append(i)
            progress.advance(1)
    write_text(cache, json.dumps(good))
    return good


def _drawable(source: PairSource, sample_id: int) -> list[str]:
    """Return the captions that training may draw. Raises BadSample if none is usable."""
    captions = usable(source.captions(sample_id))
    return [stripped(caption) for caption in (captions if source.draws_caption else captions[:1])]


def all_captions(pairs: PairSource) -> list[list[str]]:
    """Return the captions of each sample. Raises UserError: a sample has no usable caption."""
    found = []
    for i in range(len(pairs)):
        try:
            found.append(_drawable(pairs, i))
        except BadSample as error:
            raise UserError(f"{pairs.where(i)}: {error}") from error
    return found


@contextmanager
def _columns_of_eval() -> Iterator[None]:
    """Name the columns in a UserError as `clipx eval` does: caption_column, in training data.caption_column."""
    try:
        yield
    except UserError as error:
        raise UserError(re.sub(r"\bdata\.(image|caption)_column\b", r"\1_column", str(error))) from error
