"""The papers' measures by name. Without a list of data sets: the mean over all that the compared runs share."""

from evaluation.claims.measures import MetricReader, Together
from evaluation.claims.names import aliases

BOTH_R1 = ("image_to_text_recall@1", "text_to_image_recall@1")
BOTH_WAYS = tuple(f"{way}_recall@{k}" for way in ("image_to_text", "text_to_image") for k in (1, 5, 10))
COUNTING = ("scenescount", *aliases("CLEVR-Count"))
PER_CLASS = aliases("Caltech-101", "Aircraft", "Flowers", "Pets")  # of paper 5: the mean per class, top-1 elsewhere

ZEROSHOT = MetricReader("zeroshot", ("top1",))
PROBE = MetricReader("linear_probe", ("top1",))
RECALL_1 = MetricReader("retrieval", BOTH_R1)
RECALL_MEAN = MetricReader("retrieval", BOTH_WAYS)  # of R@1, 5, 10 both ways, as paper 1 has it
RECALL_1_AND_ZEROSHOT = Together((RECALL_1, ZEROSHOT))  # paper 3's mean
COUNT = MetricReader("zeroshot", ("top1",), datasets=COUNTING)
OTHERS = Together((MetricReader("zeroshot", ("top1",), without=COUNTING), RECALL_1))
PER_CLASS_ZEROSHOT = MetricReader("zeroshot", ("top1",), per_class=PER_CLASS)
PER_CLASS_PROBE = MetricReader("linear_probe", ("top1",), per_class=PER_CLASS)
PER_CLASS_BEFORE = MetricReader("linear_probe_before_projection", ("top1_before_projection",), per_class=PER_CLASS)
PAIR_ACCURACY = MetricReader("pairs", ("pair_accuracy",))
GAP = MetricReader("geometry", ("gap",))
UNIFORMITY = MetricReader("geometry", ("uniformity",))
MARGIN = MetricReader("geometry", ("margin_mean",))
MARGINS_ABOVE_0 = MetricReader("geometry", ("margin_positive",))
ZETA_POPULARITY = MetricReader("popularity", ("zeta_text_spearman", "zeta_image_spearman"))  # on scenes with a skew
