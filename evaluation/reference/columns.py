"""Columns of open_clip's result tables, each with our result rows for the same data set and metric."""

from dataclasses import dataclass
from functools import cache

from clipx.utils.files import content_hash
from evaluation.claims.measures import canonical_name
from evaluation.datasets import prompts
from evaluation.runs.results import LIMIT
from evaluation.tasks.zeroshot import SPLIT
from evaluation.types import Result

TOLERANCE = 0.01  # allowed relative difference in the number of items: copies of a data set differ by a few
OWN = "own"
PAPER = ", paper protocol"  # suffix of a split's name under protocol=paper


@dataclass(frozen=True)
class Column:
    """A column of a published table."""

    title: str  # in open_clip's table
    names: tuple[str, ...]  # of the data set, as `canonical_name` returns them
    task: str  # of our result row
    metric: str  # of our result row
    items: int  # images or captions that the published value is a mean over; 0: that number is not published
    templates: str = ""  # key in clip-benchmark's table of prompts; OWN: the set comes with its prompts; "": no prompts
    drawn: str = ""  # the data set's name in our rows if clipx draws its test split at random

    def obstacle(self, row: Result) -> str:
        """Return the reason why a row of this data set and metric cannot be compared; "" if it can."""
        if row.split.endswith(PAPER):
            return "protocol=paper; published: exact recall"
        if row.dataset == self.drawn:
            return "our own test split"
        if LIMIT in row.hashes or (self.items and abs(row.n - self.items) > TOLERANCE * self.items):
            return f"{row.n:,} items; published: {self.items:,}" if self.items else f"only {row.n:,} items"
        if self.templates == OWN and row.split != SPLIT:
            return "other prompts; published: the set's own"
        if self.templates not in ("", OWN) and row.hashes.get("templates/test") != _hash_of_templates(self.templates):
            return "other prompts; published: CLIP-benchmark's"
        return ""


@cache
def _hash_of_templates(key: str) -> str:
    return content_hash(prompts.published_templates(key))


def _set(title: str, names: str, items: int, templates: str, metric: str = "top1", drawn: str = "") -> Column:
    return Column(title, tuple(names.split()), "zeroshot", metric, items, templates, drawn)


PER_CLASS = "mean_per_class"
# Data sets, main metrics and numbers of test images are from DataComp's evaluation (Gadre et al. 2023), which open_clip
# runs.
COLUMNS = (
    _set("ImageNet 1k", "imagenet imagenet1k", 50_000, "imagenet1k"),
    _set("ImageNet v2", "imagenetv2", 10_000, "imagenet1k"),
    _set("ImageNet Sketch", "imagenetsketch", 50_889, "imagenet1k"),
    _set("ImageNet-A", "imageneta", 7_500, "imagenet1k"),
    _set("ImageNet-O", "imageneto", 2_000, "imagenet1k"),
    _set("ImageNet-R", "imagenetr", 30_000, "imagenet1k"),
    _set("ObjectNet", "objectnet", 18_574, "imagenet1k"),
    _set("Caltech-101", "caltech101", 6_085, "caltech101", PER_CLASS, "caltech101"),
    _set("CIFAR-10", "cifar10", 10_000, "cifar10"),
    _set("CIFAR-100", "cifar100", 10_000, "cifar100"),
    _set("CLEVR Counts", "clevrcount clevrcountall", 15_000, "clevr_count_all"),
    _set("CLEVR Distance", "clevrclosestobjectdistance clevrdistance", 15_000, "clevr_closest_object_distance"),
    _set("Country211", "country211", 21_100, "country211"),
    _set("Describable Textures", "dtd", 1_880, "dtd"),
    _set("EuroSAT", "eurosat", 5_400, "eurosat", drawn="eurosat"),
    _set("FGVC Aircraft", "aircraft fgvcaircraft", 3_333, "fgvc_aircraft", PER_CLASS),
    _set("Food-101", "food101", 25_250, "food101"),
    _set("GTSRB", "gtsrb", 12_630, "gtsrb"),
    _set("KITTI Vehicle Distance", "kitticlosestvehicledistance kittidistance", 711, "kitti_closest_vehicle_distance"),
    _set("MNIST", "mnist", 10_000, "mnist"),
    _set("Oxford Flowers-102", "flowers102 flowers", 6_149, "flowers", PER_CLASS),
    _set("Oxford-IIIT Pet", "pets", 3_669, "pets", PER_CLASS),
    _set("Pascal VOC 2007", "voc2007", 14_976, "voc2007"),
    _set("PatchCamelyon", "pcam", 32_768, "pcam"),
    _set("Rendered SST2", "renderedsst2", 1_821, "renderedsst2"),
    _set("RESISC45", "resisc45", 6_300, "resisc45"),
    _set("Stanford Cars", "cars", 8_041, "cars"),
    _set("STL-10", "stl10", 8_000, "stl10"),
    _set("SUN397", "sun397", 108_754, "sun397", drawn="sun397"),
    _set("SVHN", "svhn", 26_032, "svhn"),
    _set("Camelyon17", "camelyon17", 85_054, OWN),
    _set("iWildCam", "iwildcam", 42_791, OWN, "macro_f1"),
    # the number of images of the worst group is not published
    _set("FMoW", "fmow", 0, OWN, "worst_group_top1"),
    _set("GeoDE", "geode", 0, OWN, "worst_group_top1"),
    _set("Dollar Street", "dollarstreet", 0, OWN, "worst_group_top5"),
    # DataComp lists 3,563 cues; it does not say how many have 10 or 12 candidates
    Column("WinoGAViL", ("winogavil",), "associations", "jaccard/10-12", 0),
    *(
        Column(f"{title} {target} retr. R@{k}", names, "retrieval", f"{metric}_recall@{k}", items)
        for title, names, images, captions in (
            ("Flickr", ("flickr30k",), 1_000, 5_000),
            ("MSCOCO", ("mscoco", "mscococaptions"), 5_000, 25_010),
        )
        for target, metric, items in (("image", "text_to_image", captions), ("text", "image_to_text", images))
        for k in (1, 5, 10)
    ),
)
BY_ROW = {(column.task, name, column.metric): column for column in COLUMNS for name in column.names}


def counterpart(row: Result) -> Column | None:
    """Return the published column of a row's task, data set and metric; None if there is none."""
    return BY_ROW.get((row.task, canonical_name(row.dataset), row.metric))
