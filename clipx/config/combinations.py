"""Checks of settings that depend on each other. No import of torch, so the command line reports mistakes at once."""

from clipx.config.schema import RunConfig
from clipx.errors import UserError

TEACHER_TERMS = ("align_clip", "clip_refine", "distill", "drrho")  # terms that need model.teacher


def check_combinations(config: RunConfig) -> None:
    """Raise UserError if settings contradict each other."""
    if "keyword" in config.objective and not config.data.keywords:
        raise UserError(
            "objective.keyword needs labels, but data.keywords is empty: set data.keywords to words, or to names "
            "of word lists: numbers, colours, directions"
        )
    with_teacher = [term for term in TEACHER_TERMS if term in config.objective]
    if with_teacher and config.model.teacher is None:
        raise UserError(
            f"objective.{with_teacher[0]} needs a frozen teacher, but model.teacher is null; allowed: a run directory, "
            "open_clip:NAME/TAG, open_clip:NAME/FILE or hf-hub:USER/NAME"
        )
    if config.log.evaluate_every and not config.data.evaluation:
        raise UserError(
            f"log.evaluate_every={config.log.evaluate_every} needs evaluation sets, but data.evaluation is empty; "
            "allowed: 0, or data.evaluation=[KIND:FOLDER,...] with sets below data.root"
        )
    check_parallel(config)
    check_batch_size(config, config.train.processes * config.launch.nodes)
    _check_length(config)


def check_parallel(config: RunConfig) -> None:
    """Raise UserError for settings that sharded weights do not support."""
    train = config.train
    if train.parallel == "fsdp" and train.precision == "fp16":  # GradScaler cannot mix sharded and whole tensors
        raise UserError("train.precision=fp16 does not work with train.parallel=fsdp; allowed: fp32, tf32, bf16")
    if train.parallel == "fsdp" and train.compile:
        raise UserError("train.compile=true does not work with train.parallel=fsdp; allowed: false")


def check_batch_size(config: RunConfig, processes: int) -> None:
    """Raise UserError if the global batch cannot be split evenly into micro-batches."""
    size, accumulation = config.train.batch_size, config.train.accumulation
    if size % (processes * accumulation):
        raise UserError(
            f"train.batch_size={size} must be divisible by {processes * accumulation} ({processes} processes x "
            f"train.accumulation={accumulation})"
        )


def _check_length(config: RunConfig) -> None:
    """Raise UserError if not exactly one of train.epochs and train.samples is set, or if the run is too short.

    The run needs at least one step and room for the warm-up. train.samples=0 is allowed: it saves the untrained model.
    """
    train, schedule = config.train, config.schedule
    if (train.epochs is None) == (train.samples is None):
        both = f"train.epochs={train.epochs} and train.samples={train.samples} are both set"
        given = "neither train.epochs nor train.samples is set" if train.epochs is None else both
        raise UserError(f"{given}; allowed: one of them, as in train.samples=null train.epochs=3")
    if train.epochs is not None and (schedule.warmup_epochs or 0) > train.epochs:
        raise UserError(
            f"schedule.warmup_epochs={schedule.warmup_epochs:g} is longer than the run; allowed: 0..{train.epochs}, or "
            "more train.epochs"
        )
    if train.samples is None or train.samples == 0:
        return
    steps = train.samples // train.batch_size
    if steps == 0:
        raise UserError(
            f"train.samples={train.samples} is less than one step of train.batch_size={train.batch_size}; "
            "allowed: 0, which saves the untrained model, or at least one batch"
        )
    if schedule.warmup_epochs is None and schedule.warmup_steps > steps:
        raise UserError(
            f"schedule.warmup_steps={schedule.warmup_steps} is longer than the run: train.samples={train.samples} are "
            f"{steps} steps; allowed: 0..{steps} (schedule.warmup_steps=N), or a longer run"
        )
