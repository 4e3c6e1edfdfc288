"""Evaluation during training, and the evaluation sets of a run (data.evaluation)."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from clipx import distributed
from clipx.config.evaluation import EvalConfig
from clipx.config.schema import RunConfig
from clipx.data.sources.opening import ensure_root_folder
from clipx.errors import UserError, prefixed
from clipx.models.clip import ClipModel
from clipx.run.folder import RunFolder
from clipx.utils.device import loader_processes
from clipx.utils.files import expanded
from clipx.utils.registry import lookup
from evaluation import runner
from evaluation.datasets.captioned import HELD_OUT
from evaluation.datasets.kinds import AnyDataset
from evaluation.datasets.named import NAMED
from evaluation.datasets.opening import check_layout, open_usable
from evaluation.embedding import encoder
from evaluation.embedding.features import Loading, extract
from evaluation.tasks import TASKS
from evaluation.types import HEADLINE, Encoder, Settings, Task

CHEAP = ("zeroshot", "retrieval", "pairs", "choices")  # tasks to score during training: they train no classifier


def own_datasets(config: RunConfig, run: Path | None = None) -> list[str]:
    """Return `LAYOUT:FOLDER` of each evaluation set of the run.

    Named sets are in config.sets, if it is given; `held_out` means the held-out pairs of the run in the folder `run`
    (default: that of the config). All others are below data.root.

    Raises UserError: data.evaluation has held_out, but the run holds out no pairs.
    """
    entries = config.data.evaluation
    if HELD_OUT in entries and not config.data.held_out:
        raise UserError(f"data.evaluation={entries} needs pairs that are not trained on: set data.held_out")
    named = expanded(config.sets) if config.sets else None
    of_run = f"{HELD_OUT}:{run or RunFolder.of(config).path}"
    found = []
    for entry in entries:
        kind, _, folder = entry.partition(":")
        if entry == HELD_OUT:
            found.append(of_run)
        elif named and kind in NAMED:
            found.append(f"{kind}:{named}")
        else:
            found.append(f"{kind}:{ensure_root_folder(config.data) / expanded(folder)}")
    return found


def check_evaluation(config: RunConfig, settings: EvalConfig) -> None:
    """Raise UserError if an evaluation set of the run is missing, or if a task of `settings` fits none of the sets."""
    for entry in config.data.evaluation:
        check_layout(entry, "data.evaluation")  # before the rendering of scenes, which own_datasets may start
    specs, tasks = own_datasets(config), settings.tasks
    # Held-out pairs have captions, but no folder before the run starts: check their tasks only.
    on_disk = [spec for spec in specs if not spec.startswith(f"{HELD_OUT}:")]
    if len(on_disk) < len(specs):
        tasks = [name for name in tasks if lookup(TASKS, name, "tasks").kind != "captioned"]
    runner.check(on_disk, tasks, Settings.of(settings))


def build_periodic_evaluator(config: RunConfig) -> Callable[[ClipModel], dict[str, float]] | None:
    """Return the function that scores the model every log.evaluate_every steps; None if log.evaluate_every is 0.

    It stores neither embeddings nor results.

    Raises UserError: an evaluation set does not exist, or no set fits a task of CHEAP.
    """
    every = config.log.evaluate_every
    if not every:
        return None
    with prefixed(f"log.evaluate_every={every}"):
        datasets, problems = open_usable(own_datasets(config))
        if problems:
            raise UserError("; ".join(dict.fromkeys(problems.values())))
    jobs = [(data, TASKS[name]) for data in datasets for name in CHEAP if runner.fits(TASKS[name], data)]
    if not jobs:
        raise UserError(
            f"log.evaluate_every={every}: none of data.evaluation={config.data.evaluation} can be scored while "
            f"training; allowed: sets that fit a task of {', '.join(CHEAP)}"
        )

    @cache  # the tokenizer is slow to build
    def encoder_of(model: ClipModel) -> Encoder:
        name, device = f"{config.name}/s{config.seed}", next(model.parameters()).device
        return encoder.of_model(model, name, "", config.seed, device, config.train.precision)

    return lambda model: _scores(config, jobs, model, encoder_of(model))


def _scores(
    config: RunConfig, jobs: list[tuple[AnyDataset, Task]], model: ClipModel, encoder: Encoder
) -> dict[str, float]:
    """Return `DATASET TASK METRIC` -> fraction for the headline metrics on rank 0, {} on other ranks.

    All ranks must call this, and each embeds a part. Non-finite embeddings count as misses: training decides whether
    such a run stops. This changes neither the model on rank 0 nor the global random states.
    """
    if distributed.world_size() > 1:
        _take_buffers_of_rank0(model)
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    # no larger than a rank's micro-batch, which fits in memory
    micro_batches = config.train.processes * config.launch.nodes * config.train.accumulation
    batch_size = min(config.train.batch_size // micro_batches, EvalConfig().batch_size)
    loading = Loading(batch_size, loader_processes(config.data.workers), device)
    scores = {}
    for dataset, task in jobs:
        features = extract(encoder, {dataset.name: dataset}, task.requests(dataset), loading)
        if distributed.rank() == 0:
            for row in task.score(dataset, features, device, encoder.cosine).results:
                if row.metric in HEADLINE[task.name]:
                    scores[f"{row.dataset} {row.task} {row.metric}"] = row.value
    model.train(was_training)
    return scores


@torch.no_grad()
def _take_buffers_of_rank0(model: ClipModel) -> None:
    """Copy rank 0's buffers (batch-norm statistics), which checkpoints store; DDP would do it a step later."""
    of_rank0 = distributed.broadcast_object([buffer.cpu() for buffer in model.buffers()])
    for buffer, value in zip(model.buffers(), of_rank0, strict=True):
        buffer.copy_(value)
