"""Every setting of `clipx eval`, with its default, meaning, unit and allowed values. No import of torch."""

from dataclasses import dataclass

from clipx.config.schema import DEVICES, PRECISIONS, WANDB_MODES
from clipx.config.setting import ALL_AT_LEAST_1, AT_LEAST_1, SHARES, WORKERS, setting


@dataclass(kw_only=True)
class EvalConfig:
    """Settings of `clipx eval`; set exactly one of checkpoint and model."""

    checkpoint: str | None = setting(
        None,
        "run directory (best checkpoint if train.keep_best is set, else the last) or its checkpoints/step_*; on the "
        "command line also a list or a folder of runs; `clipx eval RUN...` sets it without the key",
    )
    model: str | None = setting(
        None, "open_clip:NAME/TAG, .../FILE or .../random (random weights); hf-hub:USER/NAME; wpse:FOLDER (paper 5)"
    )
    plugins: list[str] = setting([], "your plug-in modules, in addition to those of the run's config")
    tasks: list[str] = setting([], "tasks to run; empty: all that fit the data sets (`clipx ls tasks`)")
    datasets: list[str] = setting([], "NAME or LAYOUT:PLACE (`clipx ls data`); empty: those of the run's config")
    suite: str = setting(
        "none",
        "also evaluate the data sets of this group that exist in sets=; their mean is printed only if all are there",
        choices=("none", "datacomp38", "vtab", "clip13", "composition"),
    )
    sets: str | None = setting(None, "folder of the data sets given by NAME; null: sets= of the run, else ./data")
    prompts: str = setting("ensemble", "ensemble | simple | a prompt with {c} for the class name")
    protocol: str = setting(
        "corrected",
        "paper: as paper 1's evaluator, which scores one caption per image and counts all others as hits; centred: "
        "zeroshot, retrieval, clustering and mixed_search without the mean embedding of each modality",
        choices=("corrected", "paper", "centred"),
    )
    limit: int | None = setting(
        None,
        "for a quick look: evaluate this many images or minimal pairs of each split, drawn with a fixed seed; reports "
        "leave out the results",
        AT_LEAST_1,
    )
    image_column: str = setting("image", "csv, tsv, hf: column of image paths or images")
    caption_column: str = setting("caption", "csv, tsv, hf: column of captions")
    pools: list[int] = setting([], "retrieval: also score random pools of these sizes", ALL_AT_LEAST_1, unit="images")
    out: str | None = setting(None, "folder of the results; null: the run directory, or runs/<model>")
    batch_size: int = setting(256, "batch size of the towers", AT_LEAST_1, unit="samples")
    workers: int | str = setting(
        "auto", "processes per rank that decode images; auto: the cores of this rank, less one", WORKERS
    )
    device: str = setting("auto", "auto: CUDA if present", choices=DEVICES)
    precision: str = setting("fp32", "precision of the towers; scores use float32 or float64", choices=PRECISIONS)
    processes: int = setting(1, "processes on this machine; each embeds a part of the images and texts", AT_LEAST_1)
    jobs: int = setting(1, "runs evaluated at the same time", AT_LEAST_1)
    features_eval: int | None = setting(
        None,
        "D, number of random Fourier features, for models that use them; null: the run's model.points.features_eval",
        AT_LEAST_1,
    )
    ema: bool = setting(False, "use the averaged weights of train.ema")
    interpolate: list[float] = setting(
        [],
        "alphas: evaluate the weights (1 - alpha) * start + alpha * trained; rows go to RUN/interpolated/ALPHA",
        SHARES,
    )
    force: bool = setting(False, "repeat finished evaluations")
    wandb: str = setting("off", "Weights & Biases", choices=WANDB_MODES)
    project: str = setting("clipx", "W&B project")
