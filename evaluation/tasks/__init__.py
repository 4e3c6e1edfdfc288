"""The tasks that `clipx eval` runs."""

from evaluation.tasks.geometry import Geometry
from evaluation.tasks.linear_probe import LinearProbe
from evaluation.tasks.pairs import Pairs
from evaluation.tasks.retrieval import Retrieval
from evaluation.tasks.zeroshot import ZeroShot
from evaluation.types import Task

TASKS: dict[str, Task] = {
    "zeroshot": ZeroShot(),
    "linear_probe": LinearProbe(),
    "retrieval": Retrieval(),
    "pairs": Pairs(),
    "geometry": Geometry(),
}
