"""`clipx data make` and `pull`: download training data with img2dataset, evaluation sets with torchvision."""

import csv
import json
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from cli.settings.arguments import parse_arguments
from clipx.config.setting import AT_LEAST_1, between, setting
from clipx.errors import UserError
from clipx.utils.files import new_file
from clipx.utils.registry import lookup

# options of img2dataset: resize the shorter side, so that random crops keep their resolution; do not enlarge images
RESIZE_SHORTER_SIDE = ("--resize_mode", "keep_ratio", "--resize_only_if_bigger", "True")
# from DataComp's script: resize the longer side, blur faces
DATACOMP_OPTIONS = (
    "--resize_mode", "keep_ratio_largest", "--resize_only_if_bigger", "True",
    "--bbox_col", "face_bboxes", "--save_additional_columns", '["uid"]',
)  # fmt: skip


@dataclass(frozen=True)
class Published:
    """A data set published as a list of URLs and captions."""

    get: str  # how to get the list, for messages
    columns: tuple[str, ...] = ()  # columns of a TSV list without header; (): the list is Parquet files
    caption: str = "caption"  # name of the caption column
    split: str = "train"  # folder of the shards: the value of data.split
    size: int = 256  # of the resized side, pixels
    options: tuple[str, ...] = RESIZE_SHORTER_SIDE  # of img2dataset


URL_LISTS: dict[str, Published] = {
    "cc3m": Published(
        "Train_GCC-training.tsv from ai.google.com/research/ConceptualCaptions/download", ("caption", "url")
    ),
    "cc12m": Published("cc12m.tsv from storage.googleapis.com/conceptual_12m/cc12m.tsv", ("url", "caption")),
    "datacomp_small": Published(
        "`hf download mlfoundations/datacomp_pools --repo-type dataset --include 'small/*.parquet' --local-dir DIR`, "
        "then urls=DIR/small",
        caption="text",
        split="shards",
        size=512,
        options=DATACOMP_OPTIONS,
    ),
}


@dataclass(kw_only=True)
class MakeOptions:
    """The options of `clipx data make`."""

    urls: str | None = setting(None, "the published list")
    root: str | None = setting(None, "folder of the data set")
    size: int | None = setting(None, "of the resized side; null: as published", between(16, 4096), unit="pixels")
    processes: int | None = setting(None, "of img2dataset; null: one per processor", AT_LEAST_1)
    threads: int = setting(64, "of each process", AT_LEAST_1)
    dry: bool = setting(False, "only print img2dataset's command line")


@dataclass(kw_only=True)
class PullOptions:
    """The options of `clipx data pull`."""

    root: str | None = setting(None, "folder of the evaluation sets")


def make(arguments: list[str]) -> None:
    """Run `clipx data make NAME urls=LIST root=DIR`: download shards with img2dataset."""
    (name,), options = parse_arguments(arguments, MakeOptions, "data make", f"one of {', '.join(URL_LISTS)}")
    published = lookup(URL_LISTS, name, "clipx data make")
    if not options.urls or not options.root:
        raise UserError(f"clipx data make {name} needs root=DIR for the shards and urls=LIST: {published.get}")
    urls, root = Path(options.urls), Path(options.root)
    img2dataset_list = root / f"{name}_img2dataset.tsv" if published.columns else urls
    line = command(published, img2dataset_list, root, options)
    print(shlex.join(line), flush=True)
    if options.dry:
        return
    if not urls.exists():
        raise UserError(f"urls={urls} is missing; to get the list: {published.get}")
    program = shutil.which(line[0])
    if program is None:  # not a dependency, because version 1.47 needs webdataset < 0.3 and pandas < 3
        raise UserError("img2dataset is not installed; it needs a separate environment: pipx install img2dataset")
    if published.columns:
        rows = add_header(urls, img2dataset_list, published.columns, name)
        print(f"{rows:,} rows in {img2dataset_list}", flush=True)
    require_network(img2dataset_list, published)
    code = subprocess.run([program, *line[1:]], check=False).returncode
    if code:
        raise UserError(f"img2dataset ended with exit code {code}; its output above says why. Run again to resume")
    _print_result(name, root / published.split)


def command(published: Published, urls: Path, root: Path, options: MakeOptions) -> list[str]:
    """Return the command line of img2dataset."""
    processes = options.processes or len(os.sched_getaffinity(0))
    return [
        "img2dataset",
        *("--url_list", str(urls), "--input_format", "tsv" if published.columns else "parquet"),
        *("--url_col", "url", "--caption_col", published.caption),
        *("--output_format", "webdataset", "--output_folder", str(root / published.split)),
        *(
            "--number_sample_per_shard",
            "10000",
            "--image_size",
            str(options.size or published.size),
            *published.options,
        ),
        *("--processes_count", str(processes), "--thread_count", str(options.threads)),
    ]


def add_header(published: Path, copy: Path, columns: tuple[str, ...], name: str) -> int:
    """Copy a list with the header and the quoting that img2dataset expects; return the number of rows.

    img2dataset parses CSV quotes, but the published lists are not quoted. So fields that contain a quote are quoted.

    Raises UserError: a row without the columns, or a list that is not UTF-8.
    """
    error = f"{published} is not the list of {name}"
    rows, url = 0, columns.index("url")
    try:
        with (
            published.open(encoding="utf-8", newline="\n") as lines,
            new_file(copy) as temporary,
            temporary.open("w", encoding="utf-8") as file,
        ):
            writer = csv.writer(file, delimiter="\t", lineterminator="\n")
            writer.writerow(columns)
            for row_number, line in enumerate(lines, start=1):
                fields = line.rstrip("\n").split("\t")
                if row_number == 1 and tuple(fields) == columns:
                    continue  # the list has a header already
                if len(fields) != len(columns) or not fields[url].startswith("http"):
                    raise UserError(f"{error}: row {row_number} is not {' TAB '.join(columns)}")
                writer.writerow(fields)
                rows += 1
    except UnicodeDecodeError as undecodable:
        raise UserError(f"{error}: not UTF-8 ({undecodable})") from undecodable
    return rows


def require_network(urls: Path, published: Published) -> None:
    """Raise UserError for a list without URLs, or if none of the first 10 hosts answers.

    Without a network img2dataset would try every URL for hours.
    """
    found = [host for url in islice(_urls(urls, published), 1000) if (host := _host(url))]
    if not found:
        raise UserError(f"{urls} lists no URL; to get the list: {published.get}")
    hosts = list(dict.fromkeys(found))[:10]
    if getproxies():  # behind a proxy, hosts cannot be reached directly
        return
    if not any(answers(host, port) for host, port in hosts):
        raise UserError(f"no network: none of {', '.join(host for host, _ in hosts)} answers")


def _host(url: str) -> tuple[str, int] | None:
    """Return host and port of a URL, None if it is malformed."""
    try:
        parts = urlsplit(url)
        return (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)) if parts.hostname else None
    except ValueError:
        return None


def answers(host: str, port: int) -> bool:
    """Return True if a connection can be opened within 3 seconds."""
    try:
        socket.create_connection((host, port), timeout=3).close()
    except (OSError, UnicodeError):  # UnicodeError: the host is no valid name
        return False
    return True


def _urls(path: Path, published: Published) -> Iterator[str]:
    if published.columns:
        with path.open(encoding="utf-8") as lines:
            next(lines)
            for line in lines:
                yield line.rstrip("\n").split("\t")[published.columns.index("url")]
        return
    from pyarrow import ArrowInvalid, parquet

    for file in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        try:
            for batch in parquet.ParquetFile(file).iter_batches(batch_size=1000, columns=["url"]):
                yield from batch.column("url").to_pylist()
        except (ArrowInvalid, KeyError) as error:
            raise UserError(f"urls={path}: {file} is no Parquet file with a column url ({error})") from error


def _print_result(name: str, folder: Path) -> None:
    """Print img2dataset's statistics and the next commands; raise UserError if no image was downloaded."""
    stats = [json.loads(path.read_text()) for path in sorted(folder.glob("*_stats.json"))]
    loaded, tried = sum(s["successes"] for s in stats), sum(s["count"] for s in stats)
    if not loaded:
        raise UserError(f"img2dataset downloaded none of {tried:,} images; {folder}/*_stats.json say why")
    print(f"{loaded:,} of {tried:,} images are in {folder}")
    print(f"next: clipx data index {folder}; clipx data verify {folder}; data={name} data.root={folder.parent}")


def pull(arguments: list[str]) -> None:
    """Run `clipx data pull NAME root=DIR`: download an evaluation set; `clipx eval` finds it with the same root=."""
    from evaluation.datasets import named
    from evaluation.datasets.layouts.vision import DOWNLOADS

    (name,), options = parse_arguments(arguments, PullOptions, "data pull", f"one of {', '.join(DOWNLOADS)}")
    if not options.root:
        raise UserError(f"clipx data pull {name} needs root=DIR")
    try:
        named.pull(name, Path(options.root))
    except (OSError, RuntimeError) as error:  # RuntimeError: a wrong checksum, or a missing package
        raise UserError(f"{name} was not downloaded: {error}") from error
    print(f"clipx eval RUN datasets=[{name}] root={options.root}")
