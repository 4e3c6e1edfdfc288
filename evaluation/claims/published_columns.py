"""Columns of the papers' tables: what of our results stands beside each."""

from dataclasses import dataclass

from evaluation.claims.measures import MetricReader
from evaluation.claims.names import ALIASES
from evaluation.claims.scores import BOTH_R1, PER_CLASS, PER_CLASS_PROBE, PER_CLASS_ZEROSHOT


@dataclass(frozen=True)
class Column:
    """A column: what of our results stands beside it."""

    label: str
    score: MetricReader | None  # None: the mean of the other columns
    scale: float = 100.0  # our fractions times this are the paper's unit


@dataclass(frozen=True)
class PaperTable:
    """One table of a paper."""

    paper: int
    source: str  # where the numbers are printed
    title: str
    recipe: str  # whose arms the rows are
    columns: tuple[Column, ...]
    rows: dict[str, str]  # arm -> the numbers, in the columns' order


def scores(task: str, names: str, metric: str = "top1", per_class: tuple[str, ...] = ()) -> tuple[Column, ...]:
    return tuple(
        Column(name, MetricReader(task, (metric,), ALIASES[name], per_class=per_class)) for name in names.split()
    )


def recalls(dataset: str) -> tuple[Column, ...]:
    ways = {"text": "image_to_text", "image": "text_to_image"}
    return tuple(
        Column(
            f"{way} R@{k}",
            # their text columns have the evaluator's floor; image columns are the same under both protocols
            MetricReader("retrieval", (f"{ways[way]}_recall@{k}",), ALIASES[dataset], paper_protocol=way == "text"),
        )
        for way in ways
        for k in (1, 5, 10)
    )


MEAN = Column("mean", None)
REG_SETS = "CIFAR-10 CIFAR-100 STL-10 Food-101 ImageNetV2 DTD"
REG_PROBES = "CIFAR-10 CIFAR-100 STL-10 Food-101 DTD Flowers Pets"
THIRTEEN = "ImageNet CIFAR-10 CIFAR-100 STL-10 Food-101 Caltech-101 Cars Aircraft Flowers EuroSAT DTD Pets SUN397"
GAP_COLUMNS = (
    Column("gap", MetricReader("geometry", ("gap",)), 1.0),
    Column("uniformity", MetricReader("geometry", ("uniformity",)), 1.0),
    *(Column(f"{what} CIFAR-10", MetricReader(task, ("top1",), ALIASES["CIFAR-10"])) for what, task in
      (("zero-shot", "zeroshot"), ("probe", "linear_probe"))),
    # the printed values are too high for all 5,000 images; the paper does not say of how many they are
    Column("image R@1 of 1,000", MetricReader("retrieval", ("text_to_image_recall@1",), ALIASES["MSCOCO"], pool=1000)),
    Column("text R@1 of 1,000", MetricReader("retrieval", ("image_to_text_recall@1",), ALIASES["MSCOCO"], pool=1000)),
)  # fmt: skip
NUCLR_COLUMNS = (
    *(Column(f"{name} R@1", MetricReader("retrieval", BOTH_R1, ALIASES[name])) for name in ("MSCOCO", "Flickr30k")),
    *scores("zeroshot", "CIFAR-100 ImageNet"),
    MEAN,
)
ZEROSHOT_13 = (MEAN, *scores("zeroshot", THIRTEEN, per_class=PER_CLASS))
PROBE_13 = (MEAN, *scores("linear_probe", THIRTEEN, per_class=PER_CLASS))
BEFORE_13 = (MEAN, *scores("linear_probe_before_projection", THIRTEEN, "top1_before_projection", PER_CLASS))
SPREAD_13 = scores("zeroshot_draws", THIRTEEN, "top1_spread_over_draws")
ABLATION = (Column("zero-shot", PER_CLASS_ZEROSHOT), Column("linear", PER_CLASS_PROBE))


def printed(text: str) -> float | None:
    """A published number without its spread; None for one that the paper does not give."""
    return None if text == "-" else float(text.partition("±")[0])
