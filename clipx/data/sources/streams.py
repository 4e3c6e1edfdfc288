"""A source without random access: local or remote webdataset shards."""

import math
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Literal

from clipx.config.schema import DataConfig
from clipx.data.preprocess import captions as texts
from clipx.data.preprocess.images import BadSample
from clipx.data.shards.index import COMPRESSED, Extensions, columns_of
from clipx.data.sources.files import files_below
from clipx.errors import Fault, UserError
from clipx.utils.files import content_hash, expanded
from clipx.utils.registry import lookup
from clipx.utils.trust import is_permitted, scheme_of, starts_program

UNSAFE = re.compile(r"""[\s'"\\`\x00-\x1f]""")
RANGE = re.compile(r"\{(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])")  # the ends of {00..99} or {a..z}
MOST_SHARDS = 10_000_000  # of one URL
ATTEMPTS = 5  # reads in a row without a sample before the run ends: an outage of 15 seconds


@dataclass
class StreamedPair:
    """An encoded image and a caption, or the error that makes them unusable."""

    where: str  # location, for messages
    image: bytes = b""
    caption: str = ""
    error: str = ""  # empty for a usable pair
    lost: int = 0  # samples that are lost besides this one, in the rest of a shard


class Stream:
    """An endless source of pairs, from the shards of data.urls (or data.root).

    Each URL stands for one or more shards, and data.url_weights sets its share of the pairs. The shards of a URL are
    drawn with replacement; each is read from beginning to end.
    """

    streaming: Literal[True] = True

    def __init__(self, config: DataConfig, extensions: Extensions = ()) -> None:
        """`extensions`: as for `open_index`."""
        urls = config.urls or ([config.root] if config.root else [])
        weights = config.url_weights or [1.0] * len(urls)
        if not urls:
            raise UserError("data.urls is needed for data.source=webdataset: shards, such as FOLDER/{00000..00099}.tar")
        if len(weights) != len(urls) or not all(0 < weight < math.inf for weight in weights):
            raise UserError(f"data.url_weights={weights} must be one number above 0 for each of the {len(urls)} urls")
        self.column = lookup(texts.MEMBERS, config.captions, "data.captions")
        self.column_of = columns_of(extensions)
        self.at_random = config.captions == "random"
        if config.num_samples is None:
            raise UserError("data.num_samples is needed for data.source=webdataset: the number of samples per epoch")
        self.num_samples = config.num_samples  # per epoch
        self.shards, self.problems = _without_missing([_expanded(url) for url in urls], config.max_bad_rate)
        self.weights = weights
        self.buffer = config.shuffle_buffer
        self.shard_size = self.num_samples // sum(map(len, self.shards))  # samples of the last whole shard, or a guess
        self.fingerprint = f"stream:{content_hash([self.shards, weights])}"
        self.failures = 0  # reads without a sample, since the last sample

    def __len__(self) -> int:
        return self.num_samples

    def pairs(self, generator: random.Random) -> Iterator[StreamedPair]:
        """Yield pairs without end, in an order that depends only on the generator."""
        from webdataset import shuffle

        # `initial`: the first batch does not wait for a full buffer, which fills by two pairs for each that it yields
        mix = shuffle(self.buffer, initial=1, rng=generator)
        streams = [mix(self._endless(shards, generator)) for shards in self.shards]
        while True:
            (stream,) = generator.choices(streams, self.weights)
            yield next(stream)

    def _endless(self, shards: list[str], generator: random.Random) -> Iterator[StreamedPair]:
        while True:
            yield from self._shard(generator.choice(shards), generator)

    def _shard(self, url: str, generator: random.Random) -> Iterator[StreamedPair]:
        from webdataset.tariterators import tarfile_samples

        name, found = url.rpartition("/")[2], 0
        try:
            for sample in tarfile_samples([{"url": url}]):
                found, self.failures = found + 1, 0
                yield self._pair(f"{name}:{sample['__key__']}", sample, generator)
        except Exception as error:  # OSError, tarfile's errors, and errors of the URL's opener
            reason = f"{type(error).__name__}: {error}"
            if not found and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                self.failures += 1  # ends the run, or waits longer each time
                if self.failures == ATTEMPTS:
                    raise Fault(f"{ATTEMPTS} reads in a row gave no sample; the last error: {reason}") from error
                time.sleep(2 ** (self.failures - 1))
            lost = max(1, self.shard_size - found)
            ends = f"it ends after {found} samples, about {lost} samples are lost"
            yield StreamedPair(name, error=f"the rest cannot be read ({reason}); {ends}", lost=lost - 1)
        else:
            if not found:
                yield StreamedPair(name, error="holds no samples")
            self.shard_size = found or self.shard_size

    def _pair(self, where: str, sample: dict[str, bytes], generator: random.Random) -> StreamedPair:
        columns: dict[str, bytes] = {}  # of several images or captions the first counts, as in `Shards`
        for extension, data in sample.items():
            if (column := self.column_of.get(extension.lower())) is not None:
                columns.setdefault(column, data)
        missing = [column for column in ("image", self.column) if column not in columns]
        if missing:
            return StreamedPair(where, error=f"lacks {', '.join(missing)}")
        try:
            captions = texts.all_from_member(self.column, columns[self.column])
            caption = texts.choose_caption(captions, self.at_random, generator)
        except BadSample as error:
            return StreamedPair(where, error=str(error))
        return StreamedPair(where, columns["image"], caption)


def _expanded(url: str) -> list[str]:
    """Return the shards that a URL stands for: A{00..99}.tar, or on a drive also a folder of *.tar, or a pattern.

    Raises UserError: no shards, or one starts a program that the command line has not named.
    """
    from webdataset.gopen import gopen_schemes

    if not url.strip():
        raise UserError("data.urls has an empty entry; allowed: URLs, files, folders and patterns of shards")
    url = str(expanded(url)) if url.startswith("~") else url
    is_path = scheme_of(url) == ""
    if is_path and Path(url).is_dir():
        shards = sorted(map(str, files_below(Path(url), (".tar", *COMPRESSED))))
    elif is_path and any(sign in url for sign in "*?["):
        shards = sorted(glob(str(Path(url)), recursive=True))  # noqa: PTH207 - Path.glob refuses A/**.tar
    else:
        shards = _without_braces(url)
    if not shards:
        raise UserError(f"data.urls={url} has no shards (*.tar)")
    for one in shards:
        scheme = scheme_of(one)
        if scheme not in ("", "file", *gopen_schemes):
            known = ", ".join(f"{name}:" for name in gopen_schemes if name.isalnum())
            raise UserError(f"data.urls={one}: {scheme}: cannot be read; allowed: paths, {known}")
        if starts_program(one) and not is_permitted("programs", url):
            raise UserError(
                f"data.urls={url} starts a program, and a file may not do that; if you trust it, add "
                f"\"data.urls=['{url}']\" to the command"
            )
        if scheme not in ("", "file", "pipe") and UNSAFE.search(one):  # opened by curl or gsutil
            raise UserError(f"data.urls={one} has spaces, quotes or control characters; write them as %20, %27, ...")
    return shards


def _without_braces(url: str) -> list[str]:
    """Return A00.tar ... A99.tar for A{00..99}.tar. Raises UserError: braces that fit nothing, or too many shards."""
    from webdataset.shardlists import expand_urls

    most = (url.count(",") + 1) ** url.count("{")  # a brace has at most one text more than there are commas
    try:
        for ends in RANGE.findall(url):
            first, last = (ord(end) if end.isalpha() else int(end) for end in ends)
            most *= abs(last - first) + 1
        if most <= MOST_SHARDS:
            return list(expand_urls(url))
    except (AssertionError, ValueError) as error:  # a variable ${NAME} of webdataset that is not set
        raise UserError(f"data.urls={url} cannot be expanded: {error}") from error
    raise UserError(f"data.urls={url} may stand for more than {MOST_SHARDS:,} shards: use several URLs")


def _without_missing(shards: list[list[str]], limit: float) -> tuple[list[list[str]], list[str]]:
    """Return the shards of each URL without local files that are missing, and a message for each of these.

    Raises UserError: a larger share than `limit`, or all of a URL, is missing.
    """
    paths = {one: Path(one.removeprefix("file:")) for urls in shards for one in urls}
    missing = {one for one, path in paths.items() if scheme_of(one) in ("", "file") and not path.is_file()}
    kept = [[one for one in urls if one not in missing] for urls in shards]
    if len(missing) > limit * len(paths) or not all(kept):
        much = f"more than data.max_bad_rate={limit}" if all(kept) else "all of one URL"
        raise UserError(
            f"data.urls: {len(missing)} of {len(paths)} shards are missing, {much}; the first is {min(missing)}"
        )
    return kept, [f"{one} is missing" for one in sorted(missing)]
