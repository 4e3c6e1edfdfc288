"""open_clip's published models and results, the model nearest to a run, and the public logs of paper 3's authors.

published.csv has the columns used here of open_clip's tables docs/openclip_results.csv, openclip_retrieval_results.csv
and model_profile.csv. Its first line names their commit.
"""

import csv
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clipx.utils.files import content_hash
from evaluation.claims.measures import canonical_name
from evaluation.datasets import prompts
from evaluation.runs.description import last, pairs_in_epoch
from evaluation.runs.reader import Run
from evaluation.runs.results import LIMIT, TRAINING_PAIRS
from evaluation.types import CENTRED_NOTE, PAPER_NOTE, SPLIT, Result

FILE = Path(__file__).with_suffix(".csv")
LOGS = FILE.with_name("published_logs.csv")
PUBLIC = "public: "  # begins the labels of curves from LOGS, but no name of a run
# Training data -> number of pairs, for models whose tag does not give the samples seen. The number of epochs is in the
# tag (laion400m_e31), else 32: published for CLIP (Radford et al. 2021, section 2.5) and for open_clip's YFCC models
# (docs/PRETRAINED.md), assumed for cc12m.
PAIRS = {"openai": 400e6, "laion400m": 407e6, "yfcc15m": 15e6, "cc12m": 12e6}
EPOCHS = 32
# timm's image towers -> open_clip's towers of the same size
TIMM = {
    "resnet50": "RN50",
    "resnet101": "RN101",
    "vit_base_patch32": "ViT-B-32",
    "vit_base_patch16": "ViT-B-16",
    "vit_large_patch16": "ViT-L-16",
    "vit_large_patch14": "ViT-L-14",
    "vit_huge_patch14": "ViT-H-14",
}
DATA = {"datacomp_small": "commonpool_s"}  # data.name -> published training data; both are the unfiltered small pool
TOLERANCE = 0.01  # allowed relative difference in the number of items: copies of a data set differ by a few
OWN = "own"


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
        if TRAINING_PAIRS in row.hashes:
            return "the run's training pairs"
        if PAPER_NOTE in row.split:
            return "protocol=paper; published: exact recall"
        if CENTRED_NOTE in row.split:
            return "protocol=centred; published: the embeddings as they are"
        if row.dataset == self.drawn:
            return "our own test split"
        if self.task == "retrieval" and (split := row.split.partition(",")[0]) in ("train", "val", "dev"):
            return f"the split {split}; published: test"
        if LIMIT in row.hashes or (self.items and abs(row.n - self.items) > TOLERANCE * self.items):
            return f"{row.n:,} items; published: {self.items:,}" if self.items else f"only {row.n:,} items"
        if self.templates == OWN and row.split != SPLIT:
            return "other prompts; published: the set's own"
        if self.templates not in ("", OWN) and row.hashes.get("templates/test") != content_hash(
            prompts.published_templates(self.templates)
        ):
            return "other prompts; published: CLIP-benchmark's"
        return ""


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


@dataclass(frozen=True)
class PublishedModel:
    """A model of open_clip's tables."""

    tower: str  # open_clip's model name
    tag: str  # of its weights
    image_flops: float  # billions
    values: dict[str, float]  # title of the column -> result, a fraction

    @property
    def name(self) -> str:
        """`RN50/cc12m`, as in `model=open_clip:RN50/cc12m`."""
        return f"{self.tower}/{self.tag}"

    @property
    def data(self) -> str:
        """Name of the training data in the tag: `cc12m`, `datacomp_xl`."""
        return re.split(r"_(?:s\d+[mb]|e\d+|b\d+k)(?:_|$)", self.tag)[0]

    @property
    def samples(self) -> float | None:
        """Samples seen in training; None if unknown."""
        if found := re.search(r"_s(\d+)([mb])(_|$)", self.tag):
            return float(found[1]) * {"m": 1e6, "b": 1e9}[found[2]]
        if self.data not in PAIRS:
            return None
        epochs = re.search(r"_e(\d+)$", self.tag)
        return PAIRS[self.data] * (float(epochs[1]) if epochs else EPOCHS)


@cache
def source(file: Path = FILE) -> str:
    """Return the origin and the licence of a table."""
    return file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def public_log(run: Run, quantity: str) -> dict[str, list[tuple[float, float]]]:
    """Return the curves of the authors' public log for the run's arm: label -> (step, value) at the ends of epochs.

    `quantity` is its name in our log. Scores are in per cent; their recalls are means of both directions. {} for a run
    with another recipe, data, batch or length than theirs.
    """
    given, train, found = run.config, run.config.train, dict[str, list[tuple[float, float]]]()
    if (given.recipe, given.data.name, train.batch_size, train.epochs) != ("nuclr_cc3m", "cc3m", 512, 30):
        return {}
    title = re.sub("(image_to_text|text_to_image)_", "", quantity)
    steps = (pairs_in_epoch(run) or 2_798_889) // train.batch_size  # the number of theirs, if the run tells none
    for row in csv.DictReader(LOGS.read_text(encoding="utf-8").splitlines()[1:]):
        for column, value in row.items():
            if row["arm"] == given.arm and column.startswith(title) and value:
                label = f"{PUBLIC}{given.arm}{column.removeprefix(title)}"
                found.setdefault(label, []).append((int(row["epoch"]) * steps, float(value)))
    return found


@cache
def models() -> dict[str, PublishedModel]:
    """Return all models by name, in the order of open_clip's table: best mean first."""
    found = {}
    for row in csv.DictReader(FILE.read_text(encoding="utf-8").splitlines()[1:]):
        tower, tag, flops = (row.pop(name) for name in ("name", "pretrained", "image_gflops"))
        model = PublishedModel(tower, tag, float(flops), {title: float(value) for title, value in row.items()})
        found[model.name] = model
    return found


@dataclass(frozen=True)
class PublishedValue:
    """A published value beside a result row."""

    model: PublishedModel
    column: Column
    difference: float  # ours minus published
    obstacle: str  # reason why the two values cannot be compared; "" if they can

    @property
    def published(self) -> float:
        """The published value, a fraction."""
        return self.model.values[self.column.title]


def published_value(row: Result, model: PublishedModel) -> PublishedValue | None:
    """Return the model's value beside a row; None if open_clip publishes no such data set, task and metric."""
    column = counterpart(row)
    if column is None:
        return None
    return PublishedValue(model, column, row.value - model.values[column.title], column.obstacle(row))


def nearest(run: Run) -> PublishedModel:
    """Return the published model nearest to a run; if the run evaluates published weights, their own model.

    Models with the same training data come first. Among these, or among all if there are none, the model with the
    same image tower is nearest, else the nearest in FLOPs. Ties are broken by samples seen, then by the shortest name.
    """
    own = models().get(run.results[0].model.removeprefix("open_clip:")) if run.results else None
    if own is not None:
        return own
    given = run.config.train.samples
    return _nearest(run.config.data.name, _tower_of(run), last(run, "samples") or (float(given) if given else None))


@cache
def _nearest(data: str, tower: str, samples: float | None) -> PublishedModel:
    """Return the model for data, image tower and samples. The runs of an experiment have few different ones."""
    flops = {image_tower(model.tower): model.image_flops for model in models().values()}

    def distance(model: PublishedModel) -> tuple[bool, float, float, int, str]:
        same_data = model.data == DATA.get(data, data)
        theirs = image_tower(model.tower)
        of_tower = 0.0 if theirs == tower else 1 + _log_distance(flops.get(tower), model.image_flops)
        return not same_data, of_tower, _log_distance(samples, model.samples), len(model.name), model.name

    return min(models().values(), key=distance)


def image_tower(name: str) -> str:
    """Return the image tower of an open_clip model: `ViT-B-32` for `roberta-ViT-B-32` and `ViT-B-32-quickgelu`."""
    return re.sub(r"^.*(?=ViT-)", "", name).removesuffix("-quickgelu")


def _tower_of(run: Run) -> str:
    kind, _, name = run.config.model.image.name.partition(":")
    if kind == "timm":
        return next((ours for timm, ours in TIMM.items() if re.fullmatch(rf"{timm}([_.].*)?", name)), "")
    return image_tower(name)


def _log_distance(ours: float | None, theirs: float | None) -> float:
    return abs(math.log(ours / theirs)) if ours and theirs else math.inf
