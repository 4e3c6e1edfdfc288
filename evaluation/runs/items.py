"""`results/items.parquet` in a run directory: right or wrong for each single item of an evaluation.

One row per item (image, caption or minimal pair) and metric, for intervals over seeds and test items. The rows are in
the order of the evaluations.
"""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL.Image import Image
from pyarrow import parquet

from clipx.errors import UserError
from clipx.utils.files import content_hash, write_bytes
from clipx.utils.lock import turn
from clipx.utils.trust import load_json
from evaluation.runs.groups import MIN_SEEDS
from evaluation.runs.results import LIMIT
from evaluation.types import Dataset, Encoder, Items

THUMBNAIL = 112  # pixels, the longer side
FILE = Path("results") / "items.parquet"
WORD = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema({
    "task": WORD,
    "dataset": WORD,
    "split": WORD,  # with prompts, protocol and limit, as in results.jsonl
    "metric": WORD,
    "item": pa.int32(),  # index in the split's images, captions or pairs
    "unit": pa.int32(),  # image of a caption, else the item: items of one unit are not independent
    "right": pa.bool_(),
    "rank": pa.int32(),  # of the right answer, 1 = best; null if the metric has no ranks, or if the rank is MISS
    "model": WORD,
    "seed": pa.int64(),
    "hashes": WORD,  # JSON, as in results.jsonl
    "questions": WORD,  # hash of data, prompts and scoring: two models' rows with equal hashes are paired by `item`
    "source": WORD,  # specification of the data set, as LAYOUT:FOLDER
})  # fmt: skip
MOST_ROWS = 20_000_000  # of a run; ImageNet's and COCO's validation images under six protocols are one million
RESAMPLES = 2000
BLOCK = 100  # resamples held at once: of the 108,754 images of SUN397, all of them would take 7 GB
COUNTED = {"item": "DELTA_BINARY_PACKED", "unit": "DELTA_BINARY_PACKED"}  # stores 0, 1, 2, ... in almost no space


def add(out: Path, items: list[Items], task: str, dataset: Dataset, encoder: Encoder) -> None:
    """Add rows to results/items.parquet in `out`; they replace rows with the same task, data set and hashes."""
    from pyarrow.compute import field  # slow to import

    if not items:
        return
    path = out / FILE
    with turn(path.with_suffix(".lock")):
        table = read(out)
        for one in items:
            same_set = (field("task") == task) & (field("dataset") == dataset.short)
            table = table.filter(~(same_set & (field("hashes") == _text(one.hashes))))
        added = [_table(one, task, dataset, encoder) for one in items]
        _write(path, pa.concat_tables([table, *added]).unify_dictionaries())


def read(out: Path) -> pa.Table:
    """Return the rows of a run directory with the columns of SCHEMA; none if it has no items.

    Raises UserError: the file is corrupt or has other columns.
    """
    path = out / FILE
    if not path.is_file():
        return SCHEMA.empty_table()
    try:
        file = parquet.ParquetFile(path)
        if file.metadata.num_rows > MOST_ROWS:
            raise UserError(f"{path} has {file.metadata.num_rows:,} rows; at most {MOST_ROWS:,} are read")
        return file.read().select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowException, KeyError, OSError) as error:
        raise UserError(f"{path} is not a table of items: remove it and run clipx eval with force=true") from error


def _text(hashes: dict[str, str]) -> str:
    return json.dumps(hashes, sort_keys=True)


def _table(items: Items, task: str, dataset: Dataset, encoder: Encoder) -> pa.Table:
    from evaluation.metrics import MISS  # imports torch, which a report does not need

    questions = {name: value for name, value in items.hashes.items() if name not in encoder.provenance}
    words = {
        "task": task,
        "dataset": dataset.short,
        "split": items.split,
        "metric": items.metric,
        "model": encoder.name,
        "hashes": _text(items.hashes),
        "questions": content_hash(sorted(questions.items())),
        "source": dataset.name,
    }
    count, rank = len(items.item), items.rank
    columns = {name: pa.repeat(word, count) for name, word in words.items()} | {
        "item": items.item.numpy(),
        "unit": (items.item if items.unit is None else items.unit).numpy(),
        "right": items.right.numpy(),
        "rank": pa.nulls(count) if rank is None else pa.array(rank.numpy(), mask=(rank == MISS).numpy()),
        "seed": pa.repeat(encoder.seed, count),
    }
    return pa.table(columns).select(SCHEMA.names).cast(SCHEMA)


def _write(path: Path, table: pa.Table) -> None:
    repeated = [name for name in SCHEMA.names if name not in (*COUNTED, "right")]
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression="zstd", use_dictionary=repeated, column_encoding=COUNTED)
    write_bytes(path, buffer.getvalue())


def over_seeds_and_items(
    a: dict[int, Path], b: dict[int, Path], task: str, metrics: tuple[str, ...], sets: set[tuple[str, str]]
) -> tuple[float, float] | None:
    """Return the 95% interval of the mean difference a - b over seeds and test items together.

    A crossed bootstrap (Owen 2007): a resample draws seeds, and units (images, with all their captions) of every set.
    The sets count alike. The interval over seeds alone says nothing about other test images.

    Args:
        a: seed -> run directory of one method.
        b: the same of the other; seeds that both have count.
        task: whose items are compared.
        metrics: of the task; their mean over a unit is its score.
        sets: data set and split of the items.

    None: fewer than three common seeds, or the last evaluation of a run lacks the items of a set.
    """
    seeds = sorted(a.keys() & b.keys())
    if len(seeds) < MIN_SEEDS:
        return None
    try:
        of_seeds = [(_scores(a[seed], task, metrics), _scores(b[seed], task, metrics)) for seed in seeds]
    except UserError:
        return None
    shared = set.intersection(*(set(one.keys() & other.keys()) for one, other in of_seeds))
    scored = sorted(key for key in shared if key[:2] in sets)
    if not sets or {key[:2] for key in scored} != sets:
        return None
    return crossed_interval([np.stack([one[key] - other[key] for one, other in of_seeds]) for key in scored])


def crossed_interval(by_set: list[NDArray[np.float64]]) -> tuple[float, float]:
    """Return the 95% interval of the mean over sets of [seeds, units], from a bootstrap over seeds and over units."""
    import torch  # slow to import

    from evaluation.metrics import percentile_interval

    draw = np.random.default_rng(0)
    count = by_set[0].shape[0]
    of_seeds = draw.multinomial(count, np.full(count, 1 / count), RESAMPLES) / count
    total = np.zeros(RESAMPLES)
    for differences in by_set:
        units = differences.shape[1]
        of_units = (draw.multinomial(units, np.full(units, 1 / units), BLOCK) for _ in range(RESAMPLES // BLOCK))
        of_each_seed = np.concatenate([drawn @ differences.T / units for drawn in of_units])  # [RESAMPLES, seeds]
        total += (of_seeds * of_each_seed).sum(axis=1) / len(by_set)
    return percentile_interval(torch.from_numpy(total))


def _scores(out: Path, task: str, metrics: tuple[str, ...]) -> dict[tuple[str, str, str], NDArray[np.float64]]:
    """Return (data set, split, questions) -> score of each unit: the mean over `metrics` of its items, float64 [units].

    The last evaluation of a metric counts, none with limit=. An image without captions is no unit.
    """
    by = ["dataset", "split", "questions", "metric"]
    table = read(out).select(["task", *by, "unit", "right", "hashes"]).to_pandas()
    found: dict[tuple[str, str, str], list[NDArray[np.float64]]] = {}
    of_task = table[(table["task"] == task) & table["metric"].isin(metrics)]
    for (dataset, split, questions, _), rows in of_task.groupby(by, observed=True):
        hashes = rows["hashes"].iloc[-1]
        if LIMIT not in load_json(hashes):
            right = rows[rows["hashes"] == hashes].groupby("unit")["right"].mean()
            found.setdefault((dataset, split, questions), []).append(right.to_numpy())
    return {key: np.mean(scores, axis=0) for key, scores in found.items() if len(scores) == len(metrics)}


def thumbnail(image: Image) -> str:
    """Return a small JPEG as a data URI, for the report."""
    small = image.convert("RGB")
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
