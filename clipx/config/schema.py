"""Every setting of a run, with its default, meaning, unit and allowed values.

`clipx ls settings` prints the list. Nothing here imports torch, so that the command line starts fast.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from clipx.config.setting import (
    ALPHA,
    AT_LEAST_0,
    AT_LEAST_1,
    BETAS,
    CONTEXT_LENGTH,
    CROP_SCALE,
    DECAY,
    FACTOR,
    FOLDER,
    NAME,
    POSITIVE,
    RAND_AUGMENT,
    SHARE,
    WIDTH,
    WORKERS,
    at_least,
    between,
    setting,
)

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
LOSS_PRECISIONS = ("fp32", "tf32", "bf16")
WANDB_MODES = ("off", "offline", "online")
ARM_PREFIX = "arm:"  # model.init=arm:NAME, model.teacher=arm:NAME
PUBLISHED_PREFIXES = ("open_clip:", "hf-hub:")  # prefixes of model.teacher; a value without one names a run
# settings that earlier versions had -> (default there, what to use instead); the config.yaml of older runs has them
REMOVED = {
    "train.copy_to": (None, "copy the run directory by another program, see docs/scaling.md"),
    "train.parallel": ("ddp", "each process holds all weights; the results are the same"),
}
# axis of a ladder (`scale:` in a recipe) -> the settings that take the value of a point
AXES: dict[str, tuple[str, ...]] = {
    "samples": ("train.samples",),
    "data": ("data.scenes.num_train",),  # other data have no setting for their size
    "width": ("model.image.name", "model.text.name"),
    "batch": ("train.batch_size",),
}
MIN_POINTS = 3  # smallest number of points of a ladder


@dataclass(kw_only=True)
class ScenesConfig:
    """Settings of rendered scenes: number, size, and faults of the training captions. Evaluation captions are correct.

    A caption has at most one of the four faults omit, mislabelled, irrelevant_numbers and noise. The four settings are
    the probabilities of the faults, so they sum to at most 1.

    What captions leave out follows either omit, or count_share, colour_share and shape_share, each on its own.
    """

    seed: int = setting(0, "seed of the data set; sample i depends on (seed, i) and these settings only", AT_LEAST_0)
    num_train: int = setting(60_000, "number of training pairs", AT_LEAST_1)
    image_size: int = setting(48, "height and width", between(32, 128), unit="pixels")
    max_count: int = setting(6, "largest number of objects in a group, on a grid of 9 cells", between(2, 9))
    # above 0 by default: a model trained only on captions with all three attributes fails on prompts with one of them
    omit: float = setting(0.3, "share of captions that leave out count, colour or shape (paper 1, figure 4)", SHARE)
    count_share: float | None = setting(None, "share of captions with the count; null: see omit", SHARE)
    colour_share: float | None = setting(None, "share of captions with the colour; null: see omit", SHARE)
    shape_share: float | None = setting(None, "share of captions with the shape; null: see omit", SHARE)
    mislabelled: float = setting(0.0, "share of captions with a wrong count (paper 2)", SHARE)
    irrelevant_numbers: float = setting(
        0.0, 'share of captions with an unrelated number, "photo two of ten" (paper 2)', SHARE
    )
    noise: float = setting(0.0, "share of captions with a wrong colour or shape, or an unrelated text (paper 2)", SHARE)
    false_negatives: float = setting(0.0, "share of samples that show one of 50 recurring contents (paper 2)", SHARE)
    popularity_skew: float = setting(0.0, "Zipf exponent over (shape, colour), 0: uniform (paper 3)", between(0, 3))
    contents: int | None = setting(
        None, "number of different contents of the training set; null: each sample draws its own", between(1, 20_000)
    )
    layout: str = setting("grid", "grid: objects within cells; free: may cross borders", choices=("grid", "free"))
    world: str = setting(
        "all",
        "shapes and colours of the training pairs; first, second: one half of them each, with evaluation sets of both "
        "halves (scenes_*, new_*)",
        choices=("all", "first", "second"),
    )
    test_images: int = setting(1_000, "test images of each class set, and images for retrieval", between(1, 20_000))
    test_pairs: int = setting(60, "minimal pairs of each category", AT_LEAST_1)


@dataclass(kw_only=True)
class DataConfig:
    """Training pairs and their preprocessing."""

    name: str = setting(MISSING, "name of the data set in run names and tables")
    source: str = setting(
        MISSING, "scenes | shards | folder | coco | karpathy | csv | tsv | hf | embeddings; a stream: webdataset"
    )
    root: str | None = setting(None, "folder of the data; scenes: null is the cache folder", resumable=True)
    split: str = setting("train", "folder below root with the training shards or images; hf: name of the split")
    captions: str = setting(
        "first",
        "first: the .txt member or first text; random: one of the sample's texts each epoch (shards: `captions` of the "
        ".json member); each: every caption with its image is a sample (folder, coco, karpathy, csv, tsv)",
        choices=("first", "random", "each"),
    )
    annotations: str | None = setting(None, "coco, karpathy, csv, tsv: caption file below root")
    image_column: str = setting(
        "image", "csv, tsv: column of paths, absolute or below root/split; hf: of images; shards: .EXTENSION to read"
    )
    caption_column: str = setting("caption", "csv, tsv, hf: column of captions; shards: .EXTENSION to read")
    urls: list[str] = setting([], "webdataset: shards as PREFIX{00000..00099}.tar")
    url_weights: list[float] = setting([], "webdataset: relative frequency of each URL; empty: all equal")
    num_samples: int | None = setting(None, "streams: number of samples in an epoch", AT_LEAST_1)
    shuffle_buffer: int = setting(1000, "streams: shuffle buffer per worker and URL", AT_LEAST_1, unit="samples")
    decode: str = setting(
        "exact", "exact: PIL as in open_clip; fast: JPEG at reduced size, resized by torch", choices=("exact", "fast")
    )
    augment: str = setting(
        "workers",
        "where images are resized, flipped and augmented, with the same pixels: workers, or device (a GPU, in batches)",
        choices=("workers", "device"),
        resumable=True,
    )
    crop_scale: list[float] = setting([0.9, 1.0], "range of crop area / image area; [1, 1]: central square", CROP_SCALE)
    flip: bool = setting(False, "random horizontal flip; keep it off if captions say left and right")
    held_out: float = setting(0.0, "share of pairs held out of training, by image; the same for all seeds", SHARE)
    keywords: list[str] = setting([], "words that label captions (paper 2); numbers, colours, directions: word lists")
    keyword_digits: bool = setting(False, 'read digits as number words: "2" as "two"')
    rand_augment: list[int] | None = setting(None, "RandAugment: n operations of magnitude m; null: off", RAND_AUGMENT)
    clean: str = setting(
        "none", "text cleaning of captions and prompts before the tokenizer", choices=("none", "lower_no_punctuation")
    )
    block: int = setting(
        0, "length of the blocks read at once, e.g. 256 on spinning disks; 0: no blocks", AT_LEAST_0, unit="samples"
    )
    cache: str = setting(
        "none",
        "memory: decode each image once, into memory shared by all processes (not for streams; needs decode=exact)",
        choices=("none", "memory"),
        resumable=True,
    )
    features: bool = setting(
        False, "embed all images and captions once by the frozen towers (model.*.frozen=true), and train on the outputs"
    )
    views: int | None = setting(
        None,
        "features: stored random crops and flips per image, one of which is drawn in each epoch; null: one view, "
        "preprocessed as in evaluation",
        AT_LEAST_1,
    )
    feature_precision: str = setting(
        "float32", "features: precision of the stored outputs", choices=("float32", "float16")
    )
    workers: int | str = setting(
        "auto", "loader processes per rank; auto: the cores of this rank, less one", WORKERS, resumable=True
    )
    stall_seconds: float = setting(
        600.0, "longest wait for a batch before the run ends", POSITIVE, unit="seconds", resumable=True
    )
    max_bad_rate: float = setting(0.05, "share of bad samples above which the run stops", SHARE, resumable=True)
    evaluation: list[str] = setting(
        [], "default data sets of `clipx eval`: NAME:FOLDER or LAYOUT:FOLDER below root, held_out", resumable=True
    )
    kept: list[str] = setting(
        [],
        "fine-tuning: names of evaluation sets on which reports measure the fall of scores; all others show the gain",
        resumable=True,
    )
    before_projection: bool = setting(
        False, "`clipx eval` also probes the image features before the projection", resumable=True
    )
    scenes: ScenesConfig = field(default_factory=ScenesConfig)  # read only with source=scenes


@dataclass(kw_only=True)
class TowerConfig:
    """One tower, e.g. open_clip:ViT-B-32."""

    name: str = setting(
        MISSING, "open_clip:NAME | timm:NAME (image) | hf:NAME_OR_FOLDER (text) | small:NAME; see `clipx ls towers`"
    )
    pretrained: str | None = setting(
        None,
        "published tag (hf: hub name), local file or folder; open_clip also: hf-hub:USER/NAME; null: random weights",
    )
    lr_factor: float = setting(1.0, "learning rate of the tower divided by optimizer.lr", AT_LEAST_0)
    layer_decay: float = setting(1.0, "learning rate of each layer relative to the layer above it", FACTOR)
    weight_decay: float | None = setting(None, "weight decay of the tower; null: optimizer.weight_decay", AT_LEAST_0)
    frozen: bool = setting(False, "no gradients, always in evaluation mode; a new projection of its output is trained")
    trainable_blocks: int = setting(
        0,
        "frozen: number of last blocks (as layer_decay numbers them) that are trained, with all that follows them; "
        "features are then the input of these blocks",
        AT_LEAST_0,
    )
    lora: int = setting(
        0,
        "rank of adapters of all linear layers in the blocks (LoRA), which are trained instead of the weights; 0: none",
        AT_LEAST_0,
    )
    head: str = setting(
        "tower",
        "from the tower's output to E; tower: depends on its kind (timm, hf, small: linear; open_clip: none); "
        "mlp: linear(dropout(gelu(linear(x)))), plus a linear path",
        choices=("tower", "linear", "mlp"),
    )
    head_width: int = setting(512, "mlp: units of the hidden layer", WIDTH)
    head_dropout: float = setting(0.2, "mlp: dropout of the hidden layer", DECAY)
    head_linear: bool = setting(True, "mlp: add the linear path")
    standardise: bool = setting(
        False, "features: subtract the training set's mean from each output, and divide by its standard deviation"
    )


@dataclass(kw_only=True)
class ImageTowerConfig(TowerConfig):
    """The image tower."""

    size: int | None = setting(
        None, "height and width; null: as the tower or its weights define", between(1, 10_000), unit="pixels"
    )


@dataclass(kw_only=True)
class TextTowerConfig(TowerConfig):
    """The text tower."""

    context_length: int | None = setting(
        None,
        "L, length of texts; null: the tower's own (hf: 77, small: 32 or 16); position embeddings of start weights are "
        "cut or stretched",
        CONTEXT_LENGTH,
        unit="tokens",
    )
    pooling: str | None = setting(
        None,
        "hf: one vector from the outputs at all tokens: that of the class token, the mean without padding, or the last "
        "token; null: as the model's folder or repository says (1_Pooling), else class",
        choices=("class", "mean", "last"),
    )


@dataclass(kw_only=True)
class PointsConfig:
    """Weighted point sets: all tokens of a sample instead of one point (paper 5)."""

    kernel: str = setting(
        "none",
        "none: one point per sample (CLIP); gaussian, imq: combined with the linear kernel",
        choices=("none", "linear", "gaussian", "imq"),
        table="FREQUENCIES",
    )
    width: float = setting(0.75, "gaussian: sigma; imq: c", POSITIVE)
    alpha: list[float] = setting([0.5, 0.5], "alpha1 of the linear, alpha2 of the other kernel; linear: (1, 0)", ALPHA)
    weights: str = setting(
        "tanh", "bounded weight of a point, 100 tanh(x/100) or 100 sigmoid(x/100)", choices=("tanh", "sigmoid")
    )
    reduce: str = setting("mean", "mean or sum over the points of a set", choices=("mean", "sum"))
    features_train: int = setting(1024, "D, random Fourier features in training, redrawn each step", WIDTH)
    features_eval: int = setting(512, "D, random Fourier features in evaluation", WIDTH, resumable=True)


@dataclass(kw_only=True)
class ModelConfig:
    """Two towers with the same embedding width E."""

    image: ImageTowerConfig = field(default_factory=ImageTowerConfig)
    text: TextTowerConfig = field(default_factory=TextTowerConfig)
    init: str | None = setting(
        None,
        "run directory or checkpoint with the initial weights; arm:NAME: the run of that arm of this recipe with the "
        "same seed; null: as the towers define",
    )
    force_inputs: bool = setting(
        False, "allow another image size, normalisation or tokenizer than that of the start weights (init, pretrained)"
    )
    teacher: str | None = setting(
        None,
        "frozen model for terms that need one (distill, ...): run directory, checkpoint, arm:NAME (as for init), "
        "open_clip:NAME/TAG, open_clip:NAME/FILE or hf-hub:USER/NAME; it must take the same pixels and tokens",
    )
    embed_dim: int | None = setting(
        None, "E; needed by timm: and hf: towers, fixed for open_clip: towers, 128 for small: towers", WIDTH
    )
    projection_lr_factor: float = setting(
        1.0, "learning rate of separate projections (timm, hf, small) divided by optimizer.lr", AT_LEAST_0
    )
    normalise: str = setting(
        "always",
        "when embeddings get unit length: always; evaluation: not in training (CLIP-Refine); never (paper 4's "
        '"Remove Normalization")',
        choices=("always", "evaluation", "never"),
    )
    points: PointsConfig = field(default_factory=PointsConfig)


@dataclass(kw_only=True)
class TemperatureConfig:
    """tau of the softmax; every objective sees 1/tau as `Embeddings.scale`."""

    kind: str = setting(
        "learned", "how tau is set", choices=("learned", "fixed", "linear", "cosine"), table="TEMPERATURES"
    )
    tau: float = setting(0.07, "fixed: tau; learned, linear, cosine: initial tau", POSITIVE)
    parameterisation: str = setting(
        "exp",
        "learned: 1/tau as a function of the parameter nu; scaled_exp: exp(nu / s); softplus: log(1 + exp(nu))",
        choices=("exp", "scaled_exp", "softplus", "identity"),
        table="PARAMETERISATIONS",
    )
    s: float = setting(2.0, "divisor of scaled_exp", POSITIVE)
    min_scale: float = setting(0.01, "learned: lower bound of 1/tau", POSITIVE)
    max_scale: float = setting(100.0, "learned: upper bound of 1/tau", POSITIVE)
    lr_factor: float = setting(1.0, "learned: learning rate of the temperature divided by optimizer.lr", AT_LEAST_0)
    tau_end: float | None = setting(None, "linear: tau at the end; cosine: tau at the other extreme", POSITIVE)
    every: str = setting("epoch", "linear, cosine: when tau changes", choices=("epoch", "step"))
    periods: float = setting(1.0, "cosine: number of times tau goes to tau_end and back", POSITIVE)
    bias: float | None = setting(None, "initial value of a learned bias; null: -10 with the term siglip, else no bias")


@dataclass(kw_only=True)
class MixingConfig:
    """Modality mixing: paired image and text embeddings exchange entries before the objective (paper 4)."""

    kind: str = setting("none", "how entries are mixed", choices=("none", "hard", "hard_rows", "soft"), table="MASKS")
    probability: float = setting(0.0, "p, share of the steps that mix", SHARE)


@dataclass(kw_only=True)
class OptimizerConfig:
    """The optimizer. Gains, biases and the temperature have no weight decay."""

    kind: str = setting(
        "adamw",
        "adamw; sgd: without momentum, for checks of the gradient; timm:NAME: one of timm, such as timm:muon or "
        "timm:lion, with its own betas and eps",
    )
    lr: float = setting(1e-3, "peak learning rate", AT_LEAST_0)
    betas: list[float] = setting([0.9, 0.98], "AdamW's beta1 and beta2", BETAS)
    eps: float = setting(1e-6, "AdamW's epsilon", POSITIVE)
    weight_decay: float = setting(0.1, "AdamW's decoupled weight decay", AT_LEAST_0)


@dataclass(kw_only=True)
class ScheduleConfig:
    """Learning rate over the run: linear warm-up, then `kind`."""

    kind: str = setting(
        "cosine", "cooldown: constant, then linear decay to min_lr", choices=("cosine", "constant", "cooldown")
    )
    cooldown: float = setting(0.2, "cooldown: share of the steps after the warm-up in which the rate decays", FACTOR)
    warmup_steps: int = setting(100, "length of the warm-up", AT_LEAST_0, unit="steps")
    warmup_epochs: float | None = setting(None, "replaces warmup_steps if set", AT_LEAST_0, unit="epochs")
    warmup_lr: float = setting(0.0, "learning rate at the start of the warm-up", AT_LEAST_0)
    min_lr: float = setting(0.0, "cosine, cooldown: learning rate at the end", AT_LEAST_0)


@dataclass(kw_only=True)
class TrainConfig:
    """Length, batch size, precision, checkpoints and devices of a run."""

    epochs: int | None = setting(None, "length of the run; set either this or samples", AT_LEAST_1, unit="epochs")
    samples: int | None = setting(
        None, "length of the run; set either this or epochs; 0: save the untrained model", AT_LEAST_0, unit="samples"
    )
    batch_size: int = setting(MISSING, "B, global batch over all ranks", AT_LEAST_1, unit="pairs")
    grad_clip: float | None = setting(None, "largest global gradient norm; null: off", POSITIVE)
    precision: str = setting(
        "fp32",
        "precision of the towers; tf32: float32 whose matrix products and convolutions have a 10-bit mantissa on GPUs; "
        "fp16: with loss scaling",
        choices=PRECISIONS,
    )
    loss_precision: str = setting(
        "fp32", "precision of the objective's matrix products; its sums are float32", choices=LOSS_PRECISIONS
    )
    accumulation: int = setting(
        1,
        "micro-batches per step; all negatives are kept, only batch statistics and dropout change",
        AT_LEAST_1,
        resumable=True,
    )
    grad_checkpointing: bool = setting(False, "recompute activations in backward, to save memory", resumable=True)
    compile: bool = setting(False, "compile the towers with torch.compile", resumable=True)
    sync_batchnorm: bool = setting(False, "batch statistics over all processes, on GPUs")
    ema: float | None = setting(None, "decay per step of an averaged copy of the weights; null: no copy", DECAY)
    # a step with a non-finite loss or gradient is skipped
    max_bad_steps: int = setting(
        10, "consecutive steps with non-finite loss or gradient that end the run", AT_LEAST_1, resumable=True
    )
    save_every: int = setting(200, "interval of checkpoints", AT_LEAST_1, unit="steps", resumable=True)
    keep: int = setting(2, "number of latest checkpoints to keep", AT_LEAST_1, resumable=True)
    keep_optimizer: bool = setting(
        True,
        "false: the checkpoint after the last step lacks the optimizer's state, two thirds of the size",
        resumable=True,
    )
    keep_every: int | None = setting(
        None, "also keep every checkpoint whose step is a multiple of this", AT_LEAST_1, unit="steps", resumable=True
    )
    keep_best: str | None = setting(
        None, "keep the checkpoint with the best geometry measure, min:NAME or max:NAME, e.g. min:loss", resumable=True
    )
    max_minutes: float | None = setting(
        None, "wall-clock limit: the run then saves and exits with status 75", POSITIVE, unit="minutes", resumable=True
    )
    device: str = setting("auto", "auto: CUDA if present", choices=DEVICES, resumable=True)
    table_device: str = setting(
        "auto",
        "device of the sample table; auto: as the model; cpu: saves 4 bytes per sample and column on the GPU",
        choices=("auto", "cpu"),
        resumable=True,
    )
    processes: int = setting(1, "processes per machine; they share the global batch", AT_LEAST_1, resumable=True)


@dataclass(kw_only=True)
class LaunchConfig:
    """Several machines: run the same command on each; train.processes counts the processes per machine."""

    nodes: int = setting(1, "number of machines", AT_LEAST_1, resumable=True)
    rendezvous: str | None = setting(None, "HOST:PORT of one of the machines, to which all connect", resumable=True)
    max_restarts: int = setting(3, "restarts from the last checkpoint if a process fails", AT_LEAST_0, resumable=True)
    slurm: str | None = setting(
        None, "sbatch's options ('--time=24:00:00 --cpus-per-task=96'): submit to SLURM and return", resumable=True
    )
    submit: bool = setting(True, "false: only print the script that submits to SLURM", resumable=True)


@dataclass(kw_only=True)
class LogConfig:
    """Logging during training."""

    every: int = setting(10, "interval of lines in log.jsonl", AT_LEAST_1, unit="steps", resumable=True)
    geometry_every: int = setting(
        0,
        "interval of geometry measures: loss, gap, uniformity, alignment, margins; 0: never",
        AT_LEAST_0,
        unit="steps",
        resumable=True,
    )
    geometry_pairs: int = setting(512, "number of pairs that geometry measures use", at_least(2), resumable=True)
    geometry_on: str = setting(
        "held_out", "source of the pairs that geometry measures use", choices=("held_out", "train"), resumable=True
    )
    evaluate_every: int = setting(
        0,
        "interval of zero-shot, retrieval and pair accuracy on data.evaluation, also at the last step; 0: never",
        AT_LEAST_0,
        unit="steps",
        resumable=True,
    )
    wandb: str = setting("off", "Weights & Biases", choices=WANDB_MODES, resumable=True)
    project: str = setting("clipx", "W&B project", resumable=True)
    notify: str | None = setting(
        None,
        "shell command, only from the command line, that gets a message on its stdin if the run diverges",
        resumable=True,
    )
    tensorboard: bool = setting(False, "event files in RUN/tensorboard; needs the extra `tensorboard`", resumable=True)


@dataclass(kw_only=True)
class RunConfig:
    """One training run: the content of `config.yaml` in the run directory."""

    name: str = setting(MISSING, "name of the run: its directory is <runs>/<name>/s<seed>", NAME)
    recipe: str = setting(MISSING, "recipe of the run; `clipx ls recipes` lists them")
    arm: str = setting("", "arm of the recipe, whose overrides this config already contains")
    claims: list[str] = setting([], "the papers' claims that runs of this recipe test", resumable=True)
    plugins: list[str] = setting([], "your modules that add terms, tasks, towers, sources, ...", resumable=True)
    sets: str | None = setting(None, "folder of the evaluation sets with names; null: below data.root", resumable=True)
    seed: int = setting(0, "seed of weights, data order and augmentation", AT_LEAST_0)
    runs: str = setting("runs", "folder of all run directories", FOLDER, resumable=True)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: dict[str, dict[str, Any]] = setting({}, "term -> its weight and parameters; see `clipx ls terms`")
    temperature: TemperatureConfig = field(default_factory=TemperatureConfig)
    mixing: MixingConfig = field(default_factory=MixingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    log: LogConfig = field(default_factory=LogConfig)
