"""clipx data index|verify|keywords FOLDER | pull|prepare NAME | embed recipe=NAME

index FOLDER: writes FOLDER/clipx_index, which training uses. Run it again after adding shards; known samples keep
their ids.
verify FOLDER [captions=auto|first|random] [max_bad_rate=0.05] [workers=N] [out=DIR]: decodes every sample once,
writes counts to verify.json and bad samples to verify.txt; exit code 2 if more than max_bad_rate are bad.
keywords FOLDER [keywords=numbers,dog] [captions=first|random] [digits=true]: counts the captions per keyword.
embed recipe=NAME out=DIR [key=value ...]: embeds all pairs of the recipe's data by its frozen towers, for
data=embeddings data.root=DIR.
pull NAME sets=DIR: downloads an evaluation set into DIR, where all commands with the same sets= find it.
prepare imagenet sets=DIR: unpacks the archives of ILSVRC 2012 in DIR/imagenet and checks the set.
"""

import json
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cli.settings.arguments import NoOptions, parse_arguments, take_options
from clipx.config.setting import AT_LEAST_0, FOLDER, SHARE, setting
from clipx.data.loading.faults import check_bad_rate
from clipx.data.preprocess import captions
from clipx.data.preprocess.captions import Keywords, usable
from clipx.data.preprocess.images import BadSample, decode
from clipx.data.shards.index import ABSENT, COLUMNS, INDEX_FOLDER, Index, open_index, save
from clipx.data.shards.reader import Shards
from clipx.data.sources.base import ShardPairs
from clipx.errors import UserError, one_line, printable_line
from clipx.utils.files import expanded, write_text
from clipx.utils.registry import lookup, one_of
from clipx.utils.terminal import ProgressBar

PRINTED = 20  # number of problems printed; verify.txt lists all
UNREADABLE = -1  # counted for a caption that cannot be read; 0: for one without a keyword


def index(arguments: list[str]) -> None:
    """Run `clipx data index FOLDER`: write FOLDER/clipx_index, with a report.txt in it."""
    folder = Path(parse_arguments(arguments, NoOptions, "data index", "FOLDER")[0][0])
    found = open_index(folder)
    index_folder = folder / INDEX_FOLDER
    save(found, index_folder)
    problems = list(Shards(folder, found, ("image", text_column(found))).problems)
    problems += [f"{found.where(int(row))} repeats an earlier key" for row in found.duplicates()]
    for shard in found.shards:
        problems += [printable_line(f"{shard.name}: {n} members .{end}, unused") for end, n in shard.others.items()]
    (index_folder / "report.txt").write_text("".join(f"{problem}\n" for problem in problems))
    print(f"{len(found):,} samples in {len(found.shards):,} shards")
    for column in COLUMNS:
        print(f"  with {column:6s} {int((found.arrays[f'{column}_block'] != ABSENT).sum()):,}")
    for problem in problems[:PRINTED]:
        print(f"  {problem}")
    print(f"{len(problems):,} problems, all in {index_folder / 'report.txt'}")


@dataclass(kw_only=True)
class KeywordOptions:
    """The options of `clipx data keywords`."""

    keywords: list[str] = setting(["numbers"], "words, or names of word lists: numbers, colours, directions")
    captions: str = setting("first", "captions to read", choices=("first", "random"))
    digits: bool = setting(False, 'read digits as number words: "2" as "two"')


def keywords(arguments: list[str]) -> None:
    """Run `clipx data keywords FOLDER [keywords=...] [captions=...] [digits=...]`: count the captions per keyword."""
    (folder,), options = parse_arguments(arguments, KeywordOptions, "data keywords", "FOLDER")
    label = Keywords(options.keywords, options.digits)
    pairs = ShardPairs(Path(folder), options.captions, block=0)
    counts: Counter[int] = Counter()
    for i in range(len(pairs)):
        try:
            counts[label(pairs.caption(i, random.Random(i)))] += 1
        except BadSample:
            counts[UNREADABLE] += 1
    print(f"{len(pairs):,} captions")
    rows = [*((word, counts[i]) for i, word in enumerate(label.words, start=1)), ("no label", counts[0])]
    for word, n in [*rows, ("unreadable", counts[UNREADABLE])]:
        print(f"  {word:12s} {n:10,d}  {n / len(pairs):7.2%}")


@dataclass(kw_only=True)
class VerifyOptions:
    """The options of `clipx data verify`."""

    captions: str = setting("auto", "captions to read; auto: those there are", choices=("auto", "first", "random"))
    max_bad_rate: float = setting(0.05, "share of bad samples above which the exit code is 2", SHARE)
    workers: int = setting(0, "processes; 0: one per processor", AT_LEAST_0)
    out: str | None = setting(None, "folder of the report; null: that of the shards")


def verify(arguments: list[str]) -> None:
    """Run `clipx data verify FOLDER`: write counts to verify.json and bad samples to verify.txt."""
    (given_folder,), options = parse_arguments(arguments, VerifyOptions, "data verify", "FOLDER")
    folder = Path(given_folder)
    workers = options.workers or len(os.sched_getaffinity(0))
    index = open_index(folder)
    columns = {"auto": text_column(index), "first": "txt", "random": "json"}
    shards = Shards.open(folder, ("image", columns[options.captions]))
    started, samples, size = time.perf_counter(), 0, 0
    damage: dict[str, str] = {}
    with ProgressBar() as progress:
        progress.start("samples read", len(shards))
        for found in read_all(shards, workers):
            samples, size = samples + found.samples, size + found.size
            damage |= found.damage
            progress.advance(found.samples)
    seconds = time.perf_counter() - started
    lines = [*shards.problems, *(f"{where}: {why}" for where, why in damage.items())]
    content = {
        "shards": len(index.shards),
        "samples": samples,
        "corrupt": len(damage),
        "index_problems": len(shards.problems),
        "kinds": Counter(why.partition(" (")[0] for why in damage.values()),
        "columns": shards.columns,
        "index": index.digest,
        "bytes": size,
        "seconds": round(seconds, 1),
        "images_per_s": round(samples / seconds, 1),
    }
    out = Path(options.out or folder)
    write_text(out / "verify.txt", "".join(f"{line}\n" for line in lines))
    write_text(out / "verify.json", json.dumps(content, indent=1) + "\n")
    print(f"{samples:,} samples of {len(index.shards):,} shards read with {workers} processes in {seconds:.1f} s")
    print(f"{samples / seconds:,.0f} images/s, {size / seconds / 1e6:,.0f} MB/s")
    print(f"{len(damage):,} corrupt, {len(shards.problems):,} left out by the index (clipx data index lists them)")
    for line in lines[:PRINTED]:
        print(f"  {line}")
    print(f"report: {out / 'verify.json'}, {out / 'verify.txt'}")
    check_bad_rate(options.max_bad_rate, len(lines), samples + len(shards.problems), lines, "max_bad_rate")


def text_column(index: Index) -> str:
    """Return the first text column that images have: .txt captions, .json captions or .cls classes; else "txt"."""
    has = {column: index.arrays[f"{column}_block"] != ABSENT for column in COLUMNS}
    return next((column for column in COLUMNS[1:] if (has["image"] & has[column]).any()), "txt")


@dataclass
class ShardReport:
    """The result for one shard."""

    samples: int = 0
    size: int = 0  # bytes read
    damage: dict[str, str] = field(default_factory=dict)  # location of a bad sample -> reason


def read_all(shards: Shards, workers: int) -> Iterator[ShardReport]:
    """Yield a report per shard, in order; `workers` processes check the shards."""
    # The initializer gives `shards` to each process once. An argument of _check would be sent again for every shard.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_pool_shards.append, initargs=(shards,)) as pool:
        yield from pool.map(_check, range(len(shards.index.shards)))


_pool_shards: list[Shards] = []  # holds one element in each process of the pool


def _check(number: int) -> ShardReport:
    (shards,) = _pool_shards
    image, text = shards.columns
    report = ShardReport()
    for i in shards.of_shard(number):
        report.samples += 1
        try:
            image_data, text_data = shards.read(i, image), shards.read(i, text)
            report.size += len(image_data) + len(text_data)
            decode(image_data)
            if text != "cls":
                for caption in usable(captions.all_from_member(text, text_data)):
                    captions.stripped(caption)
            elif not text_data.strip().isdigit():
                raise BadSample(".cls is not a number")
        except BadSample as error:
            report.damage[shards.where(i)] = str(error)
    return report


@dataclass(kw_only=True)
class PullOptions:
    """The options of `clipx data pull` and `clipx data prepare`."""

    sets: str = setting("data", "folder of the evaluation sets", FOLDER)


def pull(arguments: list[str]) -> None:
    """Run `clipx data pull NAME sets=DIR`: download an evaluation set; `clipx eval` finds it with the same sets=."""
    from evaluation.datasets import named

    (name,), options = parse_arguments(arguments, PullOptions, "data pull", f"one of {', '.join(named.PULLED)}")
    try:
        named.pull(name, expanded(options.sets))
    except (OSError, RuntimeError) as error:  # RuntimeError: a wrong checksum, or a missing package
        raise UserError(f"{name} was not downloaded: {one_line(error)}") from error
    print(f"clipx eval RUN datasets=[{name}] sets={options.sets}")


def prepare(arguments: list[str]) -> None:
    """Run `clipx data prepare imagenet sets=DIR`: unpack the archives in DIR/imagenet. Print the number of images."""
    from evaluation.datasets.labelled import prepare_imagenet

    (name,), options = parse_arguments(arguments, PullOptions, "data prepare", "imagenet")
    one_of(name, ["imagenet"], "clipx data prepare")
    found = prepare_imagenet(expanded(options.sets))
    print(", ".join(f"{part}: {count:,} images" for part, count in found.items()))
    print(f"clipx eval RUN datasets=[{name}] sets={options.sets}")


@dataclass
class EmbedOptions:
    """The options of `clipx data embed`; all other arguments are settings of a run."""

    out: str = setting("", "folder to write")


def embed(arguments: list[str]) -> None:
    """Run `clipx data embed recipe=R out=FOLDER`: embed all pairs of a run's data, one row for each caption.

    The folder has clip-retrieval's layout, which data=embeddings reads. After a stop, the same command continues: the
    features of the frozen towers are kept (clipx.data.features).
    """
    from cli.settings.compose import compose_run
    from clipx.data.loading.cache import open_captions
    from clipx.data.loading.features import FeatureTexts, image_features
    from clipx.data.preprocess.tokenizer import build_tokenizer
    from clipx.data.sources.embeddings import write
    from clipx.data.sources.opening import open_pair_source
    from clipx.models.frozen import frozen_towers

    options, settings = take_options(arguments, EmbedOptions, "data embed")
    if not options.out or Path(options.out).exists():
        state = "exists" if options.out else "is missing"
        raise UserError(f"out={options.out} {state}: clipx data embed recipe=NAME out=NEW_FOLDER")
    config = compose_run(settings)
    towers = frozen_towers(config)
    if len(towers) < 2 or any(len(tower.shape) > 1 for tower in towers.values()) or config.data.views is not None:
        raise UserError(
            "clipx data embed needs data.features=true and two frozen towers with one vector a sample: "
            "model.points.kernel=none, no model.*.trainable_blocks, and data.views=null"
        )
    source, tokens = open_pair_source(config.data), towers["text"].inputs
    images = image_features(config.data, source, towers["image"])
    no_keywords = Keywords([], digits=False)
    captions = open_captions(source, tokens, build_tokenizer(tokens), no_keywords, False, towers["text"])
    assert isinstance(captions.text, FeatureTexts)
    all_captions = np.arange(captions.starts[-1])
    sample = np.repeat(np.arange(len(source)), np.diff(captions.starts))  # of each caption
    good = ~np.isin(images.numbers(sample), [*images.errors]) & ~np.isin(all_captions, [*captions.errors])
    sample, caption = sample[good], all_captions[good]
    places = zip(sample.tolist(), (caption - captions.starts[sample]).tolist(), strict=True)
    texts = [usable(source.captions(i))[k] for i, k in places]
    metadata = {"image_path": [source.where(i) for i in sample.tolist()], "caption": texts}
    vectors = (
        lambda rows: images.batch(images.numbers(sample[rows]), None).numpy(),
        lambda rows: captions.text.take(caption[rows]).numpy(),
    )
    write(Path(options.out), vectors, metadata)
    left_out = f", {np.count_nonzero(~good):,} unusable ones left out" if not good.all() else ""
    print(f"{options.out}: {len(caption):,} pairs{left_out}")
    widths = " ".join(f"'model.{side}.name=\"embeddings:{tower.shape[0]}\"'" for side, tower in towers.items())
    print(f"to train: clipx train recipe=embeddings data.root={options.out} {widths}")


COMMANDS: dict[str, tuple[Callable[[list[str]], None], type]] = {  # name -> function, its options
    "index": (index, NoOptions),
    "keywords": (keywords, KeywordOptions),
    "verify": (verify, VerifyOptions),
    "pull": (pull, PullOptions),
    "prepare": (prepare, PullOptions),
    "embed": (embed, EmbedOptions),
}


def data(arguments: list[str]) -> None:
    """Run `clipx data SUBCOMMAND ...`."""
    if not arguments:
        raise UserError(f"`clipx data` needs a command; allowed: {', '.join(COMMANDS)}")
    run, _ = lookup(COMMANDS, arguments[0], "clipx data")
    run(arguments[1:])
