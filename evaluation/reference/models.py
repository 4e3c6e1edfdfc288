"""open_clip's published models and results (open_clip.csv.gz; CONTRIBUTING.md has the command that renews it)."""

import csv
import gzip
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "open_clip.csv.gz"
FACTS = ("name", "pretrained", "params (M)", "FLOPs (B)", "image_mparams", "image_gflops")  # other columns: results
# Training data -> number of pairs, for models whose tag does not give the samples seen. The number of epochs is in the
# tag (laion400m_e31), else 32: published for CLIP (Radford et al. 2021, section 2.5) and for open_clip's YFCC models
# (docs/PRETRAINED.md), assumed for cc12m.
PAIRS = {"openai": 400e6, "laion400m": 407e6, "yfcc15m": 15e6, "cc12m": 12e6}
EPOCHS = 32


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
def source() -> str:
    """Return the origin and the licence of the table."""
    return _lines()[0].removeprefix("# ").rstrip()


@cache
def models() -> dict[str, PublishedModel]:
    """Return all models by name, in the order of open_clip's table: best mean first."""
    found = {}
    for row in csv.DictReader(_lines()[1:]):
        tower, tag, _, _, _, image_flops = (row.pop(name) for name in FACTS)
        values = {title: float(value) for title, value in row.items()}
        model = PublishedModel(tower, tag, float(image_flops), values)
        found[model.name] = model
    return found


def _lines() -> list[str]:
    return gzip.decompress(FILE.read_bytes()).decode().splitlines()
