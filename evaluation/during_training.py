"""Accuracy while training: evaluation sets scored with the weights of the moment, nothing cached or written."""

from collections.abc import Sequence

import torch

from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models.clip import ClipModel
from evaluation import runner
from evaluation.datasets.kinds import AnyDataset
from evaluation.embedding import encoder
from evaluation.embedding.features import Loading, embed
from evaluation.tasks import TASKS
from evaluation.tasks.headline import HEADLINE
from evaluation.types import Encoder

CHEAP = ("zeroshot", "retrieval", "pairs")  # tasks that fit nothing and draw nothing


class PeriodicEvaluator:
    """The sets and tasks of a run; called with its model, it gives the headline numbers."""

    def __init__(self, config: RunConfig, datasets: Sequence[AnyDataset], batch_size: int) -> None:
        """`batch_size`: images or texts at once, on each rank.

        Raises:
            UserError: none of the data sets fits one of the tasks.
        """
        self.config = config
        self.batch_size = batch_size
        self.jobs = [(data, TASKS[name]) for data in datasets for name in CHEAP if runner.fits(TASKS[name], data)]
        if not self.jobs:
            raise UserError(
                f"log.evaluate_every={config.log.evaluate_every}: none of data.evaluation={config.data.evaluation} can "
                f"be scored while training; allowed: sets that fit a task of {', '.join(CHEAP)}"
            )
        self.encoder: Encoder | None = None

    def __call__(self, model: ClipModel) -> dict[str, float]:
        """`DATASET TASK METRIC` -> a fraction, on rank 0; all ranks call it, share the embedding and get {}.

        Embeddings that are not finite are misses: whether such a run ends is for training to say. The model comes back
        as it was, and no global random state is drawn from.
        """
        if distributed.world_size() > 1:
            _take_buffers_of_first(model)
        was_training = model.training
        model.eval()
        found = self._scores(model)
        model.train(was_training)
        return found

    def _scores(self, model: ClipModel) -> dict[str, float]:
        device = next(model.parameters()).device
        config, loading = self.config, Loading(self.batch_size, self.config.data.workers, device)
        if self.encoder is None:  # its tokenizer takes a while to build; there is one model in a run
            name = f"{config.name}/s{config.seed}"
            self.encoder = encoder.of_model(model, name, "", config.seed, device, config.train.precision)
        found = {}
        for dataset, task in self.jobs:
            features = embed(self.encoder, {dataset.name: dataset}, task.requests(dataset), loading)
            if distributed.rank() == 0:
                for row in task.score(dataset, features, device, self.encoder.cosine).results:
                    if row.metric in HEADLINE[task.name]:
                        found[f"{row.dataset} {row.task} {row.metric}"] = row.value
        return found


@torch.no_grad()
def _take_buffers_of_first(model: ClipModel) -> None:
    """Running statistics as a checkpoint holds them, those of rank 0; DDP does the same before its next forward."""
    of_first = distributed.broadcast_object([buffer.cpu() for buffer in model.buffers()])
    for buffer, first in zip(model.buffers(), of_first, strict=True):
        buffer.copy_(first)
