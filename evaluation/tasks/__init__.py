"""Table of the tasks that `clipx eval` runs."""

from evaluation.tasks.clustering import Clustering
from evaluation.tasks.composition import CaptionChoice, CueAssociations, PairAccuracy
from evaluation.tasks.geometry import Geometry
from evaluation.tasks.linear_probe import LinearProbe
from evaluation.tasks.mixed_search import MixedSearch
from evaluation.tasks.retrieval import Retrieval
from evaluation.tasks.zeroshot import ZeroShot, ZeroShotDraws
from evaluation.types import Task

TASKS: dict[str, Task] = {
    "zeroshot": ZeroShot(),
    "zeroshot_draws": ZeroShotDraws(),
    "linear_probe": LinearProbe(),
    "linear_probe_before_projection": LinearProbe("before projection"),
    "retrieval": Retrieval(),
    "pairs": PairAccuracy(),
    "choices": CaptionChoice(),
    "associations": CueAssociations(),
    "geometry": Geometry(),
    "clustering": Clustering("labelled"),
    "caption_clustering": Clustering("captioned"),
    "mixed_search": MixedSearch(),
}
