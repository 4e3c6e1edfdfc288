"""Evaluation runner: embeds the data sets, scores the tasks, and skips tasks whose results are already stored."""

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clipx import distributed
from clipx.config.schema import DataConfig
from clipx.errors import UserError
from clipx.run.folder import ARTIFACTS, RESULTS
from clipx.utils.files import write_text
from clipx.utils.registry import lookup
from clipx.utils.trust import load_json
from evaluation.datasets.kinds import AnyDataset, Captioned, Labelled
from evaluation.datasets.opening import is_training_data, open_usable, training_copies
from evaluation.datasets.prompts import ENSEMBLE
from evaluation.embedding.features import Loading, extract
from evaluation.runs import items, results
from evaluation.runs.results import LIMIT, TRAINING_PAIRS, split_note
from evaluation.tasks import TASKS
from evaluation.types import DEFAULTS, Device, Encoder, Features, Result, Settings, Task

PRINTED_EVERY = 10  # seconds between lines of progress
Plan = list[tuple[AnyDataset, list[Task]]]  # data sets, each with the tasks that score it
MANY_COPIES = 0.01  # share of copies of training images from which a set counts as training pairs


def evaluate(
    encoder: Encoder,
    specs: list[str],
    tasks: list[str],
    out: Path,
    loading: Loading,
    force: bool = False,
    settings: Settings = DEFAULTS,
    training: DataConfig | None = None,
) -> list[Result]:
    """Score each task on each data set that fits the task; print and return all rows.

    With several ranks, every rank calls this function and embeds its share. Rank 0 scores; other ranks return no rows.

    Args:
        specs: data sets, `LAYOUT:FOLDER`.
        tasks: keys of `TASKS`; empty: all tasks that fit a data set, except those with `on_request`.
        out: folder for results.jsonl, .csv, .md and artifacts/. Results stored there with the same hashes are reused.
        force: score again even if the results are stored; cached embeddings are still used.
        settings: prompts, retrieval protocol, pools, limit and columns.
        training: the model's training pairs, if they are known; the splits of rows on these pairs say so.

    Raises UserError: an unknown task or data set, a task that fits none of the data sets, or unusable data. A set that
    cannot be used does not stop the others: the error is raised after their rows are stored.
    """
    plan, unusable = _opened(specs, tasks, settings, encoder)
    by_name = {dataset.name: dataset for dataset, _ in plan}
    limited = {LIMIT: str(settings.limit)} if settings.limit is not None else {}
    trained_on = {name for name, dataset in by_name.items() if training and _is_trained_on(dataset, training)}
    marks = {name: limited | ({TRAINING_PAIRS: "yes"} if name in trained_on else {}) for name in by_name}
    jobs = _jobs(encoder, plan, unusable, out, force, marks)
    is_new = any(not job.rows for group in jobs for job in group)
    problems, rows = [*unusable.values()], list[Result]()
    printed = time.monotonic()
    for number, group in enumerate(jobs):
        if distributed.rank() == 0 and time.monotonic() - printed >= PRINTED_EVERY:
            printed = time.monotonic()
            print(f"{encoder.name}: {number} of {len(jobs)} evaluation sets are scored", file=sys.stderr)
        try:
            # Rank 0 writes the results. Other ranks may read an older file, so all take rank 0's list of requests.
            requests = [request for job in group if not job.rows for request in job.task.requests(job.dataset)]
            requests = distributed.broadcast_object(requests)
            features = extract(encoder, by_name, requests, loading)
            for job in group if distributed.rank() == 0 else ():
                if not job.rows:
                    job.rows = _score(encoder, job, features, loading.device, out)
                    results.add(out / RESULTS, job.rows)
                rows += job.rows
        except UserError as error:  # all ranks raise it, or rank 0 while it scores
            problems.append(str(error))
    if distributed.rank() > 0:
        return []
    if rows:
        results.write_tables(out)
        _show(rows, plan)
        if not is_new:
            print("nothing new: all these results were stored before; force=true evaluates again", file=sys.stderr)
    if problems:
        raise UserError("; ".join(dict.fromkeys(problems)))
    return rows


def _is_trained_on(dataset: AnyDataset, training: DataConfig) -> bool:
    """Return True if a set has the training pairs, or at least MANY_COPIES of its images, and two, are copies."""
    copies = training_copies(dataset, training) if distributed.rank() == 0 else 0  # rank 0 alone writes the rows
    if not copies:
        return is_training_data(dataset.name, training)
    count = len(dataset.images(dataset.splits[0]))
    found = is_training_data(dataset.name, training) or copies >= max(2, MANY_COPIES * count)
    counted = "so no claim and no comparison counts this set" if found else "too few to leave the set out"
    print(f"{dataset.name}: {copies} of {count} images are copies of training images, {counted}", file=sys.stderr)
    return found


def _show(rows: list[Result], plan: Plan) -> None:
    """Print the table of rows, and what a reader of its numbers must know about a data set."""
    results.show(rows)
    for dataset, fitting in plan:
        for kind, task in ((Captioned, "retrieval"), (Labelled, "zeroshot")):
            if isinstance(dataset, kind) and TASKS[task] in fitting and (note := dataset.repeated_note()):
                print(note)


@dataclass
class _Job:
    dataset: AnyDataset
    task: Task
    hashes: dict[str, str]
    rows: list[Result]  # stored rows; empty if the task has to be scored
    artifact: Path


def _job(encoder: Encoder, dataset: AnyDataset, task: Task, out: Path, force: bool, marks: dict[str, str]) -> _Job:
    hashes = _hashes(encoder, dataset, task) | marks
    artifact = _artifact_path(out, dataset, task, split_note(hashes))
    return _Job(dataset, task, hashes, [] if force else _stored_rows(out, dataset, task, hashes, artifact), artifact)


def _jobs(
    encoder: Encoder, plan: Plan, unusable: dict[str, str], out: Path, force: bool, marks: dict[str, dict[str, str]]
) -> list[list[_Job]]:
    """Return the jobs of each set that all ranks can use; add specification -> problem of the others to `unusable`.

    `marks`: data set -> entries for the hashes of its rows.
    """
    groups: dict[str, list[_Job]] = {}
    for data, fitting in plan:
        try:
            groups[data.name] = [_job(encoder, data, task, out, force, marks[data.name]) for task in fitting]
        except UserError as error:
            unusable[data.name] = str(error)
    for of_rank in distributed.gather_objects(unusable):  # all ranks must embed the same sets
        unusable |= of_rank
    return [group for name, group in groups.items() if name not in unusable]


def _score(encoder: Encoder, job: _Job, features: Features, device: Device, out: Path) -> list[Result]:
    """Return the rows; store the artifact and the items first, so that stored rows always have both."""
    score = job.task.score(job.dataset, features, device, encoder.cosine)
    if score.artifact is not None:
        _save_artifact(job, score.artifact)
    note = split_note(job.hashes)
    hashes = job.hashes | job.task.groups(job.dataset)[0]
    by_item = [replace(one, split=one.split + note, hashes=hashes | one.hashes) for one in score.items]
    items.add(out, by_item, job.task.name, job.dataset, encoder)
    return [
        replace(row, split=row.split + note, model=encoder.name, seed=encoder.seed, hashes=hashes | row.hashes)
        for row in score.results
    ]


def check(specs: list[str], tasks: list[str], settings: Settings = DEFAULTS, every: bool = True) -> None:
    """Raise UserError if data sets or tasks cannot be used, without reading images.

    `every`: all sets must be usable; otherwise one is enough.
    """
    _, problems = _opened(specs, tasks, settings)
    if every and problems:
        raise UserError("; ".join(dict.fromkeys(problems.values())))


def _opened(
    specs: list[str], tasks: list[str], settings: Settings, encoder: Encoder | None = None
) -> tuple[Plan, dict[str, str]]:
    """Return the plan of the sets that can be opened, and specification -> problem of the others.

    Raises UserError: no set can be opened, or the tasks are unknown or fit none of the sets.
    """
    datasets, problems = open_usable(specs, settings)
    if problems and not datasets:
        raise UserError("; ".join(dict.fromkeys(problems.values())))
    try:
        return _plan(datasets, tasks, encoder), problems
    except UserError as error:  # the task may fit one of the others
        raise UserError("; ".join([*problems.values(), str(error)])) from error


def _plan(datasets: list[AnyDataset], names: list[str], encoder: Encoder | None = None) -> Plan:
    """Return the tasks to run on each data set; without an encoder, the tasks' variants are not checked.

    A named task whose variants the model lacks is skipped with a message if another named task can run, because the
    arms of a recipe share one list of tasks.
    """
    tasks = [lookup(TASKS, name, "tasks") for name in dict.fromkeys(names)]
    for task in tasks:
        if not any(fits(task, dataset) for dataset in datasets):
            splits = f" with {' and '.join(task.needs)} splits" if task.needs else ""
            given = ", ".join(f"{d.name} ({d.kind}: {', '.join(d.splits)})" for d in datasets) or "none"
            raise UserError(f"tasks={task.name} needs a {task.kind} data set{splits}; datasets are {given}")
    for dataset in datasets if not tasks else ():
        if not any(fits(task, dataset) for task in TASKS.values()):
            found = f"{dataset.name} ({dataset.kind}: {', '.join(dataset.splits)})"
            raise UserError(f"datasets= has {found}, which fits no task; `clipx ls tasks` lists the splits they need")
    known = None if encoder is None else encoder.image_variants.keys()
    wanted = tasks or [task for task in TASKS.values() if not task.on_request]
    chosen = [task for task in wanted if known is None or set(task.variants) <= known]
    for task in tasks:
        if encoder is not None and task not in chosen:
            variants = ", ".join(task.variants)
            need = f"tasks={task.name} needs a model with features {variants}: {encoder.name} lacks them"
            if not chosen:
                raise UserError(need)
            if distributed.rank() == 0:
                print(f"skipped: {need}", flush=True)
    return [(dataset, [task for task in chosen if fits(task, dataset)]) for dataset in datasets]


def fits(task: Task, dataset: AnyDataset) -> bool:
    """Return True if the task can score the data set."""
    return task.kind == dataset.kind and set(task.needs) <= set(dataset.splits)


def _hashes(encoder: Encoder, dataset: AnyDataset, task: Task) -> dict[str, str]:
    """Return hashes of all inputs of the score: model, task version, images and texts, labels and class names."""
    hashes = {**encoder.provenance, "scoring": str(task.version)}
    for request in task.requests(dataset):
        hashes[f"{request.view}/{request.split}"] = dataset.fingerprint(request.split, request.view)
        for name, value in dataset.hashes(request.split, request.view).items():
            hashes[f"{name}/{request.split}"] = value
    return hashes


def _stored_rows(out: Path, dataset: AnyDataset, task: Task, hashes: dict[str, str], artifact: Path) -> list[Result]:
    """Return the stored rows; [] if rows are missing or the stored artifact has other hashes."""
    stored = [row for row in results.read(out / RESULTS) if (row.task, row.dataset) == (task.name, dataset.short)]
    groups = [[row for row in stored if row.hashes == hashes | extra] for extra in task.groups(dataset)]
    if not (all(groups) and _has_hashes(artifact, hashes)):
        return []
    return [row for group in groups for row in group]


def _artifact_path(out: Path, dataset: AnyDataset, task: Task, note: str) -> Path:
    """Return a path named by task and data set, by prompts= if it is not the default, and by a note of `split_note`."""
    uses_prompts = any(request.view == "prompts" for request in task.requests(dataset))
    chosen = dataset.prompts if isinstance(dataset, Labelled) and uses_prompts else ENSEMBLE
    short = chosen.encode()[:100].decode(errors="ignore")  # names of files have at most 255 bytes
    choice = "" if chosen == ENSEMBLE else f", prompts {short}"
    return out / ARTIFACTS / f"{task.name}-{dataset.short}{choice}{note}.json".replace("/", "_")


def _has_hashes(artifact: Path, hashes: dict[str, str]) -> bool:
    """Return True if an artifact has these hashes or does not exist; False if it has others or is corrupt."""
    try:
        return not artifact.is_file() or load_json(artifact.read_text())["hashes"] == hashes
    except (ValueError, KeyError, TypeError):
        return False


def _save_artifact(job: _Job, artifact: dict[str, Any]) -> None:
    if artifact["kind"] == "retrieval":  # replace the indices of images by pictures
        images = job.dataset.images(job.dataset.splits[0])
        found = [image for query in artifact["text_to_image"] for image in query["images"]]
        for entry in [*found, *artifact["image_to_text"]]:
            entry["src"] = items.thumbnail(images[entry.pop("image")])
    write_text(job.artifact, json.dumps(artifact | {"hashes": job.hashes}))
