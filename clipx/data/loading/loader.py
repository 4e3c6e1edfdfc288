"""Batches for training: decoding in loader processes, normalisation on the device."""

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice, starmap
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from clipx.config.schema import DataConfig
from clipx.data.loading.cache import CachedImages, CachedSamples, open_captions, open_pixels
from clipx.data.loading.collate import DecodedSample, HostBatch, SamplePreprocessor, collate, sample_generator
from clipx.data.loading.faults import (
    BadSampleCounter,
    TooManyBadSamples,
    WorkerActivity,
    check_bad_rate,
    start_worker,
    with_timeout,
)
from clipx.data.loading.features import image_features
from clipx.data.preprocess.captions import Keywords
from clipx.data.preprocess.images import BadSample
from clipx.data.preprocess.on_device import Crops
from clipx.data.preprocess.tokenizer import Tokenizer
from clipx.data.preprocess.transforms import Normalise, TrainTransform
from clipx.data.sampler import SampleKey, Sampler
from clipx.data.sources.base import PairSource
from clipx.data.sources.streams import Stream
from clipx.errors import Fault, UserError
from clipx.types import Batch, Inputs
from clipx.utils.device import loader_processes

MAX_REPLACEMENTS = 1000  # largest number of samples to try in place of a rank's batch without a good sample
STREAM_NOTE = (
    "streaming: samples may repeat within an epoch, sample ids only number the samples drawn, and a resumed run sees "
    "other samples than an uninterrupted one"
)
LOGGED = 100  # largest number of a source's problems in the log
GetSample = Callable[[int, int], DecodedSample]  # (epoch, id) -> sample
NO_ID = -1  # of a streamed sample until `StreamLoader` numbers the samples of a batch


class _Copies:
    """Copies batches to a GPU while it computes, and lets the host run at most AHEAD steps ahead of it.

    The copies have their own CUDA stream. Without the limit, the host would fill the GPU's memory with batches.
    """

    AHEAD = 2

    def __init__(self, device: torch.device, computing: Callable[[], AbstractContextManager[None]]) -> None:
        self.device, self.computing = device, computing
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.ends: deque[torch.cuda.Event] = deque()  # of the latest steps

    def of(self, *tensors: Tensor | None) -> list[Any]:
        """Return the tensors on the device, for the work that is queued from now on."""
        if self.stream is None:
            return [*tensors]
        computing = torch.cuda.current_stream(self.device)
        self.ends.append(computing.record_event())  # the end of the step before
        if len(self.ends) > self.AHEAD:
            with self.computing():
                self.ends.popleft().synchronize()
        with torch.cuda.stream(self.stream):
            moved = [None if t is None else t.to(self.device, non_blocking=True) for t in tensors]
        computing.wait_stream(self.stream)
        for tensor in moved:
            if tensor is not None:
                tensor.record_stream(computing)  # keeps its memory until the step has used it
        return moved


@dataclass(eq=False)
class BatchLoader(ABC):
    """Base of both loaders: moves batches to the device and counts bad samples."""

    config: DataConfig
    source: PairSource | Stream
    sampler: Sampler
    inputs: Inputs
    tokenizer: Tokenizer
    group: Tensor | None = None  # int64 [n], group of each of the source's n samples
    negatives: bool = False  # batches contain a negative caption for each image
    towers: Mapping[str, Any] = field(default_factory=dict)  # "image", "text" -> frozen tower whose features to take

    def __post_init__(self) -> None:
        transform = TrainTransform(self.config, self.inputs)
        keywords = Keywords(self.config.keywords, self.config.keyword_digits)
        self.preprocess = SamplePreprocessor(transform, self.tokenizer, keywords)
        self.activity = WorkerActivity(loader_processes(self.config.workers))
        limit, count, problems = self.config.max_bad_rate, len(self.source), self.source.problems
        self.bad = BadSampleCounter(limit, min_seen=min(1000, count))
        check_bad_rate(limit, len(problems), count + len(problems), problems)

    def batches(
        self,
        start: int,
        device: torch.device,
        computing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Iterator[tuple[Batch, list[str]]]:
        """Yield the batches of steps start, start + 1, ..., each with the errors of its bad samples.

        `computing`: context in which to wait for the GPU's earlier steps, because this is no waiting for data.

        Raises UserError if the share of bad samples exceeds data.max_bad_rate, or if a batch has no good sample, even
        after replacement. Raises Fault if no batch arrives for data.stall_seconds.
        """
        normalise = Normalise(self.inputs, device)
        host_batches = self.host_batches(start, pin_memory=device.type == "cuda")
        copies = _Copies(device, computing)
        for host in with_timeout(_plain_errors(host_batches), self.config.stall_seconds, self.activity):
            if not len(host.sample_id):
                names = "; ".join(host.bad[:5])
                raise TooManyBadSamples(
                    f"all samples of a batch are bad, and so are all samples tried as replacements: {names}", host.bad
                )
            self.bad.count(len(host.sample_id) + len(host.bad), host.bad, host.lost)
            image, text, negative, *crops = copies.of(host.pixels, host.text, host.negative_text, *(host.crops or ()))
            if host.crops is not None:
                image = self.preprocess.transform.finish(image, Crops(*crops), host.crops)
            batch = Batch(
                sample_id=host.sample_id,
                image=image if "image" in self.towers else normalise(image),
                text=text,
                label=host.label,
                group=None if self.group is None else self.group[host.sample_id],
                negative_text=negative,
            )
            yield batch, host.bad

    @abstractmethod
    def host_batches(self, start: int, pin_memory: bool) -> Iterator[HostBatch]:
        """Return the batches of steps start, start + 1, ... in CPU memory.

        With data.cache=memory, this call fills the cache: data.stall_seconds limits only the time for a batch.
        """

    def _read(self, dataset: Dataset[Any], **options: Any) -> Iterator[HostBatch]:
        """Yield the batches that loader processes make of `dataset`; `options` are passed to DataLoader.

        Fork the loader processes: with any other start method, each of them would get its own copy of the cache.
        """
        if workers := loader_processes(self.config.workers):
            options |= {"num_workers": workers, "multiprocessing_context": "fork", "worker_init_fn": start_worker}
            if self.config.augment == "device":
                options["prefetch_factor"] = 1  # batches of whole images take much memory
        generator = torch.Generator()  # without it, DataLoader would draw from torch's global state
        return iter(DataLoader(dataset, generator=generator, **options))


def _plain_errors(batches: Iterator[HostBatch]) -> Iterator[HostBatch]:
    """Yield the batches; remove the traceback that torch puts before the message of an error in a loader process."""
    try:
        yield from batches
    except (UserError, Fault) as error:
        raise type(error)(str(error).rpartition(f".{type(error).__name__}: ")[2].strip()) from None


@dataclass(eq=False)
class SampleDataset(Dataset[HostBatch]):
    """Map-style data set: list of (epoch, id) -> batch; random draws of a sample depend only on (seed, epoch, id)."""

    source: PairSource
    preprocess: SamplePreprocessor
    seed: int
    activity: WorkerActivity
    negatives: bool

    def __getitem__(self, keys: list[SampleKey]) -> HostBatch:
        return collate([self.sample(*key) for key in keys])

    def sample(self, epoch: int, sample_id: int) -> DecodedSample:
        """Return one preprocessed sample; if it is bad, its `error` gives the reason."""
        generator = sample_generator(self.seed, epoch, sample_id)
        where = self.source.where(sample_id)
        self.activity.record(where)
        try:
            image, caption = self.source.pair(sample_id, generator)
            negative = self.source.negative(sample_id, caption) if self.negatives else None
        except BadSample as error:
            return DecodedSample(sample_id, error=f"{where}: {error}")
        finally:
            self.activity.record("")
        return self.preprocess(sample_id, where, image, caption, generator, negative)


class Loader(BatchLoader):
    """Batches of one rank in the sampler's order, the same for any number of loader processes."""

    source: PairSource

    def host_batches(self, start: int, pin_memory: bool) -> Iterator[HostBatch]:
        dataset: CachedSamples | SampleDataset
        if self.config.cache == "memory" or self.towers:
            dataset = self._cached_samples()
        else:
            dataset = SampleDataset(self.source, self.preprocess, self.sampler.seed, self.activity, self.negatives)
        # batch_size=None: each item of the data set is a batch
        batches = self._read(dataset, sampler=self.sampler.batches(start), batch_size=None, pin_memory=pin_memory)
        return self._replace_empty(dataset.sample, batches, start)

    def _cached_samples(self) -> CachedSamples:
        """Open the images and captions in memory, or their features.

        Raises UserError: the images do not fit into memory.
        """
        source = self.source
        images: CachedImages
        if "image" in self.towers:
            images = image_features(self.config, source, self.towers["image"])
        else:
            images = open_pixels(source, self.preprocess.transform)
        keywords, tower = self.preprocess.keywords, self.towers.get("text")
        captions = open_captions(source, self.inputs, self.tokenizer, keywords, self.negatives, tower)
        return CachedSamples(source, images, captions, self.sampler.seed)

    def _replace_empty(self, sample: GetSample, batches: Iterator[HostBatch], start: int) -> Iterator[HostBatch]:
        """Replace a batch without good samples by good samples of this rank's next steps.

        The step cannot be skipped: other ranks may have good samples, and a resumed run would meet the same batch.
        """
        for step, batch in enumerate(batches, start):
            if not len(batch.sample_id):
                tried = starmap(sample, islice(self.sampler.replacement_samples(step), MAX_REPLACEMENTS))
                good = islice((sample for sample in tried if not sample.error), len(batch.bad))
                batch = collate(list(good))._replace(bad=batch.bad)  # a bad replacement counts at its regular step
            yield batch


@dataclass(eq=False)
class StreamDataset(IterableDataset[DecodedSample]):
    """Iterable-style data set: an endless stream that depends on (seed, start, rank, loader process)."""

    stream: Stream
    preprocess: SamplePreprocessor
    sampler: Sampler
    start: int  # first step of the run, or of its last resume
    activity: WorkerActivity

    def __iter__(self) -> Iterator[DecodedSample]:
        worker = get_worker_info()
        number = worker.id if worker else 0
        generator = random.Random(f"{self.sampler.seed},{self.start},{self.sampler.rank},{number}")
        self.activity.record("its first sample")
        for pair in self.stream.pairs(generator):
            self.activity.record("")
            if pair.error:
                yield DecodedSample(NO_ID, error=f"{pair.where}: {pair.error}", lost=pair.lost)
            else:
                yield self.preprocess(NO_ID, pair.where, pair.image, pair.caption, generator)
            self.activity.record(f"the sample after {pair.where}")


class StreamLoader(BatchLoader):
    """Batches of one rank; they depend on the numbers of ranks and loader processes and on the last resume's step."""

    source: Stream

    def host_batches(self, start: int, pin_memory: bool) -> Iterator[HostBatch]:
        local = self.sampler.train.batch_size // self.sampler.world_size
        dataset = StreamDataset(self.source, self.preprocess, self.sampler, start, self.activity)
        endless = _drop_empty(self._read(dataset, batch_size=local, collate_fn=collate, pin_memory=pin_memory))
        for step, batch in enumerate(islice(endless, self.sampler.total_steps - start), start):
            first = step * self.sampler.train.batch_size + self.sampler.rank * local
            yield batch._replace(sample_id=first + torch.arange(len(batch.sample_id)))


def _drop_empty(batches: Iterator[HostBatch]) -> Iterator[HostBatch]:
    """Drop batches without a good sample, and report their errors with the next batch.

    After MAX_REPLACEMENTS bad samples in dropped batches, yield an empty batch, which ends the run.
    """
    bad, lost = list[str](), 0
    for batch in batches:
        bad, lost = bad + batch.bad, lost + batch.lost
        if len(batch.sample_id) or len(bad) >= MAX_REPLACEMENTS:
            yield batch._replace(bad=bad, lost=lost)
            bad, lost = [], 0


def open_loader(
    config: DataConfig,
    source: PairSource | Stream,
    sampler: Sampler,
    inputs: Inputs,
    tokenizer: Tokenizer,
    needs: Collection[str] = (),
    towers: Mapping[str, Any] | None = None,
) -> BatchLoader:
    """Return the loader for the kind of source. Its batches contain group and negative_text if `needs` names them.

    `needs`: inputs that the objective needs, `Objective.needs`. `towers`: frozen towers whose features to take.

    Raises:
        UserError: needs that the source does not provide, or the source's problems exceed data.max_bad_rate.
    """
    negatives = "negative_text" in needs
    if negatives and (source.streaming or not source.has_negatives):
        raise UserError(
            f"the objective needs negative captions, which data.source={config.source} does not have; allowed: scenes, "
            "or shards with a list `negatives` in .json"
        )
    kind = StreamLoader if source.streaming else Loader
    group = _groups(config, source) if "group" in needs else None
    return kind(config, source, sampler, inputs, tokenizer, group, negatives, towers or {})


def _groups(config: DataConfig, source: PairSource | Stream) -> Tensor:
    group = None if source.streaming else source.group_of()
    if group is None:
        raise UserError(
            f"the objective needs groups of samples, but no two samples of data.source={config.source} share an image "
            "or a content; use data.captions=each (folder, coco, karpathy, csv, tsv) or data.source=scenes"
        )
    return torch.from_numpy(group).long()


def source_notes(source: PairSource | Stream, columns: Mapping[str, float]) -> list[str]:
    """Return log messages about the source. Raises UserError for a stream if an objective has per-sample `columns`."""
    if source.streaming and columns:
        raise UserError(
            f"the objective keeps {', '.join(columns)} for every sample, but a stream has no stable sample ids: "
            "use data.source=shards or another source with random access"
        )
    problems = source.problems
    lines = [STREAM_NOTE] if source.streaming else []
    lines += [f"left out: {problem}" for problem in problems[:LOGGED]]
    if len(problems) > LOGGED:
        lines.append(f"left out: {len(problems) - LOGGED} more; for shards, `clipx data index FOLDER` writes the list")
    return lines
