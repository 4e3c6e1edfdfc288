"""`clipx data`: prepare and check training data; download data sets."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cli.data.download import make, pull
from cli.data.verify import PRINTED, text_column, verify
from cli.settings.arguments import NoOptions, parse_arguments
from clipx.config.setting import setting
from clipx.data.preprocess.images import BadSample
from clipx.data.preprocess.keywords import Keywords
from clipx.data.shards import index as indices
from clipx.data.shards.index import COLUMNS
from clipx.data.shards.reader import Shards
from clipx.data.sources.base import ShardPairs
from clipx.errors import UserError
from clipx.utils.registry import lookup

UNREADABLE = -1  # label of a caption that cannot be read; 0: no label


def data(arguments: list[str]) -> None:
    """Run `clipx data SUBCOMMAND ...`."""
    if not arguments:
        raise UserError(f"`clipx data` needs a command; allowed: {', '.join(COMMANDS)}")
    lookup(COMMANDS, arguments[0], "clipx data")(arguments[1:])


def index(arguments: list[str]) -> None:
    """Run `clipx data index FOLDER`: write FOLDER/clipx_index, with a report.txt in it."""
    folder = Path(parse_arguments(arguments, NoOptions, "data index", "FOLDER")[0][0])
    found = indices.open_index(folder)
    index_folder = indices.publish(found, folder)
    problems = list(Shards(folder, found, ("image", text_column(found))).problems)
    problems += [f"{found.where(int(row))} repeats an earlier key" for row in found.duplicates()]
    for shard in found.shards:
        problems += [f"{shard.name}: {n} members .{extension}, unused" for extension, n in shard.others.items()]
    (index_folder / "report.txt").write_text("".join(f"{problem}\n" for problem in problems))
    print(f"{len(found):,} samples in {len(found.shards):,} shards")
    for column in COLUMNS:
        print(f"  with {column:6s} {int((found.arrays[f'{column}_block'] != indices.ABSENT).sum()):,}")
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


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "index": index,
    "keywords": keywords,
    "verify": verify,
    "make": make,
    "pull": pull,
}
