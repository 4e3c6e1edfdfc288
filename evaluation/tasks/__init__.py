"""Table of the tasks that `clipx eval` runs."""

from evaluation.tasks.associations import CueAssociations
from evaluation.tasks.choices import CaptionChoice
from evaluation.tasks.geometry import Geometry
from evaluation.tasks.linear_probe.task import LinearProbe
from evaluation.tasks.many_to_many import ManyToManyRetrieval
from evaluation.tasks.pairs import PairAccuracy
from evaluation.tasks.retrieval import Retrieval
from evaluation.tasks.zeroshot import ZeroShot
from evaluation.tasks.zeroshot_draws import ZeroShotDraws
from evaluation.types import Task

TASKS: dict[str, Task] = {
    "zeroshot": ZeroShot(),
    "zeroshot_draws": ZeroShotDraws(),
    "linear_probe": LinearProbe(),
    "linear_probe_before_projection": LinearProbe("before projection"),
    "retrieval": Retrieval(),
    "pairs": PairAccuracy(),
    "choices": CaptionChoice(),
    "many_to_many": ManyToManyRetrieval(),
    "associations": CueAssociations(),
    "geometry": Geometry(),
}
