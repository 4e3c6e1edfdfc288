"""Data sets and metrics under the names that the papers use."""

from evaluation.claims.measures import CombinedReader, MetricReader, SideReader

# a data set's name in the papers -> canonical name (measures.canonical_name) of each folder name in use
ALIASES: dict[str, tuple[str, ...]] = {
    "ImageNet": ("imagenet", "imagenet1k"),
    "Aircraft": ("aircraft", "fgvcaircraft"),
    "Flowers": ("flowers", "flowers102"),
    "Pets": ("pets", "oxfordiiitpet"),
    "Cars": ("cars", "stanfordcars"),
    "MSCOCO": ("mscoco", "mscococaptions", "coco"),
    "CLEVR-Count": ("clevr", "clevrv10", "clevrcount", "clevrcounts", "clevrcountall"),
    "MMVP": ("mmvp", "mmvpvlm"),
}
ONE_NAME = "ImageNetV2 Caltech-101 CIFAR-10 CIFAR-100 STL-10 Food-101 EuroSAT DTD SUN397 Flickr30k"
ALIASES |= {name: (name.lower().replace("-", ""),) for name in ONE_NAME.split()}


def aliases(*names: str) -> tuple[str, ...]:
    """Return the canonical names of the data sets that the papers call `names`."""
    return tuple(alias for name in names for alias in ALIASES[name])


BOTH_R1 = ("image_to_text_recall@1", "text_to_image_recall@1")
ALL_RECALLS = tuple(f"{direction}_recall@{k}" for direction in ("image_to_text", "text_to_image") for k in (1, 5, 10))
COUNTING = ("scenescount", *aliases("CLEVR-Count"))
PER_CLASS = aliases("Caltech-101", "Aircraft", "Flowers", "Pets")  # paper 5: mean per class; top-1 elsewhere

# A reader without `datasets` averages over all data sets that the compared runs share.
ZEROSHOT = MetricReader("zeroshot", ("top1",))
PROBE = MetricReader("linear_probe", ("top1",))
RECALL_1 = MetricReader("retrieval", BOTH_R1)
RECALL_MEAN = MetricReader("retrieval", ALL_RECALLS)  # paper 1: mean of R@1, R@5, R@10 in both directions
RECALL_1_AND_ZEROSHOT = CombinedReader((RECALL_1, ZEROSHOT))  # paper 3's mean
COUNT = MetricReader("zeroshot", ("top1",), datasets=COUNTING)
OTHERS = CombinedReader((MetricReader("zeroshot", ("top1",), without=COUNTING), RECALL_1))
PER_CLASS_ZEROSHOT = MetricReader("zeroshot", ("top1",), per_class=PER_CLASS)
PER_CLASS_PROBE = MetricReader("linear_probe", ("top1",), per_class=PER_CLASS)
PER_CLASS_BEFORE = MetricReader("linear_probe_before_projection", ("top1_before_projection",), per_class=PER_CLASS)
PAIR_ACCURACY = MetricReader("pairs", ("pair_accuracy",))
# after fine-tuning: the sets in data.kept, and all other sets
KEPT_SETS, NEW_SETS = (SideReader(kept, (ZEROSHOT, RECALL_1, PAIR_ACCURACY)) for kept in (True, False))
GAP = MetricReader("geometry", ("gap",))
UNIFORMITY = MetricReader("geometry", ("uniformity",))
MARGIN = MetricReader("geometry", ("margin_mean",))
MARGINS_ABOVE_0 = MetricReader("geometry", ("margin_positive",))
MARGIN_QUANTILES = tuple(MetricReader("geometry", (f"margin_q{share}",)) for share in ("25", "50", "95"))
# rank correlation of NUCLR's zeta with the optimum of paper 3's eq. (5), and with the popularity of rendered scenes
ZETA_OPTIMUM = MetricReader("popularity", ("zeta_text_sinkhorn_spearman", "zeta_image_sinkhorn_spearman"))
ZETA_POPULARITY = MetricReader("popularity", ("zeta_text_spearman", "zeta_image_spearman"))
