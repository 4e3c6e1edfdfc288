"""The papers' tables (published.toml), and our metric for each column."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from evaluation.claims.measures import (
    ALIASES,
    BOTH_R1,
    GAP,
    PER_CLASS,
    PER_CLASS_PROBE,
    PER_CLASS_ZEROSHOT,
    UNIFORMITY,
    MetricReader,
)


@dataclass(frozen=True)
class Column:
    """A column of a paper's table."""

    label: str
    reader: MetricReader | None  # our number; None for the mean of the other columns
    scale: float = 100.0  # factor from our fractions to the paper's unit


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper."""

    paper: int
    source: str  # place of the numbers in the paper, and remarks on them
    title: str
    recipe: str  # its arms are the rows
    columns: tuple[Column, ...]
    rows: dict[str, str]  # arm -> published numbers, in the order of the columns
    spread: str = "standard deviation"  # or "standard error": the number after ±, over seeds


def metric_columns(task: str, names: str, metric: str = "top1", per_class: tuple[str, ...] = ()) -> tuple[Column, ...]:
    """Return one column per data set of `names`, which are separated by spaces."""
    return tuple(
        Column(name, MetricReader(task, (metric,), ALIASES[name], per_class=per_class)) for name in names.split()
    )


def recall_columns(dataset: str) -> tuple[Column, ...]:
    """Return R@1, R@5, R@10 of texts, then of images, as in paper 1."""
    directions = {"text": "image_to_text", "image": "text_to_image"}
    return tuple(
        Column(
            f"{target} R@{k}",
            # The paper's protocol and ours differ in text R@k only.
            MetricReader("retrieval", (f"{direction}_recall@{k}",), ALIASES[dataset], paper_protocol=target == "text"),
        )
        for target, direction in directions.items()
        for k in (1, 5, 10)
    )


def printed(text: str) -> float | None:
    """Return a number from a table cell without its spread; None if the paper does not give the number."""
    return None if text == "-" else float(text.partition("±")[0])


MEAN = Column("mean", None)
THIRTEEN = "ImageNet CIFAR-10 CIFAR-100 STL-10 Food-101 Caltech-101 Cars Aircraft Flowers EuroSAT DTD Pets SUN397"
COLUMNS: dict[str, tuple[Column, ...]] = {  # by the names that published.toml gives in `columns`
    "zeroshot_reg": (*metric_columns("zeroshot", "CIFAR-10 CIFAR-100 STL-10 Food-101 ImageNetV2 DTD"), MEAN),
    "probe_reg": (*metric_columns("linear_probe", "CIFAR-10 CIFAR-100 STL-10 Food-101 DTD Flowers Pets"), MEAN),
    "recall_flickr30k": (*recall_columns("Flickr30k"), MEAN),
    "recall_mscoco": (*recall_columns("MSCOCO"), MEAN),
    "clevr_count": metric_columns("zeroshot", "CLEVR-Count"),
    "nuclr": (
        Column("MSCOCO R@1", MetricReader("retrieval", BOTH_R1, ALIASES["MSCOCO"])),
        Column("Flickr30k R@1", MetricReader("retrieval", BOTH_R1, ALIASES["Flickr30k"])),
        *metric_columns("zeroshot", "CIFAR-100 ImageNet"),
        MEAN,
    ),
    "gap": (
        Column("gap", GAP, 1.0),
        Column("uniformity", UNIFORMITY, 1.0),
        Column("zero-shot CIFAR-10", MetricReader("zeroshot", ("top1",), ALIASES["CIFAR-10"])),
        Column("probe CIFAR-10", MetricReader("linear_probe", ("top1",), ALIASES["CIFAR-10"])),
        # 1,000 is our assumption: the paper gives no number of images, and its values are too high for MSCOCO's 5,000.
        *(
            Column(f"{target} R@1 of 1,000", MetricReader("retrieval", (metric,), ALIASES["MSCOCO"], pool=1000))
            for target, metric in (("image", "text_to_image_recall@1"), ("text", "image_to_text_recall@1"))
        ),
    ),
    "mmvp": (Column("MMVP", MetricReader("pairs", ("pair_accuracy",), ALIASES["MMVP"])),),
    "zeroshot_13": (MEAN, *metric_columns("zeroshot", THIRTEEN, per_class=PER_CLASS)),
    "probe_13": (MEAN, *metric_columns("linear_probe", THIRTEEN, per_class=PER_CLASS)),
    "probe_before_13": (
        MEAN,
        *metric_columns("linear_probe_before_projection", THIRTEEN, "top1_before_projection", PER_CLASS),
    ),
    "spread_13": metric_columns("zeroshot_draws", THIRTEEN, "top1_spread_over_draws"),
    "ablation": (Column("zero-shot", PER_CLASS_ZEROSHOT), Column("linear", PER_CLASS_PROBE)),
}
TABLES: tuple[PaperTable, ...] = tuple(
    PaperTable(**table | {"columns": COLUMNS[table["columns"]]})
    for table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["table"]
)
