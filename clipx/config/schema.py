"""Every setting: field, unit, the paper's symbol. Plain dataclasses; no torch here, so that the CLI starts fast.

A field marked `free` does not change what a run computes, apart from batch statistics, dropout draws and rounding: it
may differ when the run is resumed.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

RESUMABLE = {"free": True}


@dataclass(kw_only=True)
class ScenesConfig:
    """What is rendered and how bad the training captions are; evaluation splits are always clean.

    The four caption faults exclude each other, so that each share is met exactly: they sum to at most 1.
    """

    seed: int = 0  # of the whole data set; sample i depends on (seed, i) and the knobs only
    num_train: int = 60_000  # training pairs
    image_size: int = 48  # H = W, pixels
    max_count: int = 6  # most objects in a group
    # share of captions that leave out count, colour or shape (paper 1, figure 4); above 0 by default, since a model
    # that always reads all three together cannot answer a prompt that names one
    omit: float = 0.3
    mislabelled: float = 0.0  # share of captions with a wrong count (paper 2)
    irrelevant_numbers: float = 0.0  # share with a number of something else, "photo two of ten" (paper 2)
    noise: float = 0.0  # share with a wrong colour or shape, or a text about something else (paper 2)
    false_negatives: float = 0.0  # share of samples that show one of a few recurring contents (paper 2)
    popularity_skew: float = 0.0  # Zipf exponent over the (shape, colour) concepts, 0 = uniform (paper 3)


@dataclass(kw_only=True)
class DataConfig:
    """Where pairs come from and what happens to them before the towers."""

    name: str = MISSING  # in run names and tables
    source: str = MISSING  # scenes | shards | coco | csv | tsv | hf; streams: webdataset | hf_stream
    root: str | None = field(default=None, metadata=RESUMABLE)  # folder; scenes: null is the cache folder
    split: str = "train"  # folder below root that holds the training shards or images; hf: name of the split
    # shards, hf: first: the .txt member, the first text | random: one of the .json's "captions" each epoch
    # coco, csv, tsv: also each: every caption with its image is a sample of its own
    captions: str = "first"
    annotations: str | None = None  # coco, csv, tsv: file of the captions, below root
    image_column: str = "image"  # csv, tsv: paths below root/split, or absolute; hf: images
    caption_column: str = "caption"  # csv, tsv, hf
    urls: list[str] = field(default_factory=list)  # webdataset: shards as PREFIX{00000..00099}.tar
    url_weights: list[float] = field(default_factory=list)  # shares of the samples; empty: equal
    num_samples: int | None = None  # streams: what counts as an epoch
    shuffle_buffer: int = 1000  # streams: samples in memory that the next one is drawn from, per worker and URL
    # exact: PIL's decoding and resize, as open_clip | fast: JPEG decoded at a part of its size, resize in integers
    decode: str = "exact"
    # share of the area kept by the random crop; [1, 1]: the central square, no random crop
    crop_scale: list[float] = field(default_factory=lambda: [0.9, 1.0])
    flip: bool = False  # horizontal flip with probability 1/2; off where captions say left and right
    held_out: float = 0.0  # share of the pairs kept out of training, by images, the same in every seed
    # words that label a caption (paper 2), or names of lists: numbers | colours | directions; see data/keywords.py
    keywords: list[str] = field(default_factory=list)
    keyword_digits: bool = False  # a number in digits counts as the word for it, "2" as "two"
    rand_augment: list[int] | None = None  # [n, m]: RandAugment of n operations of magnitude m in 0..10; null: off
    clean: str = "none"  # captions and prompts before the tokenizer: none | lower_no_punctuation
    # samples that lie together on disk and are read together, for spinning disks and network file systems (256 is
    # good); 256 such blocks, drawn at random, are mixed at a time. 0: any order, which small data and SSDs allow
    block: int = 0
    workers: int = field(default=2, metadata=RESUMABLE)  # loader processes per rank
    stall_seconds: float = field(default=600.0, metadata=RESUMABLE)  # without a batch, after which the run ends
    max_bad_rate: float = field(default=0.05, metadata=RESUMABLE)  # share of bad samples above which a run stops
    # what `clipx eval` takes if no data set is named: wds: captions: pairs: and a folder below root
    evaluation: list[str] = field(default_factory=list, metadata=RESUMABLE)
    before_projection: bool = field(
        default=False, metadata=RESUMABLE
    )  # `clipx eval` probes those image features as well
    scenes: ScenesConfig = field(default_factory=ScenesConfig)  # used by source scenes only


@dataclass(kw_only=True)
class TowerConfig:
    """One tower, e.g. open_clip:ViT-B-32."""

    name: str = MISSING  # open_clip:NAME | timm:NAME (image) | hf:NAME_OR_FOLDER (text); `clipx ls towers` lists them
    pretrained: str | None = None  # a published tag (hf: a hub name), or a local file or folder; null: from scratch
    lr_factor: float = 1.0  # learning rate of the tower over optimizer.lr
    layer_decay: float = 1.0  # the learning rate of each layer is this factor times that of the layer above
    weight_decay: float | None = None  # null: optimizer.weight_decay
    frozen: bool = False  # no gradients, in evaluation mode throughout; a new projection on top is trained


@dataclass(kw_only=True)
class ImageTowerConfig(TowerConfig):
    """The tower of the images."""

    size: int | None = None  # H = W, pixels; null: what the tower was made, or its weights were trained, for


@dataclass(kw_only=True)
class TextTowerConfig(TowerConfig):
    """The tower of the captions."""

    context_length: int | None = None  # L, tokens; null: the tower's own, 77 for hf: towers


@dataclass(kw_only=True)
class PointsConfig:
    """Weighted point sets of all tokens in place of one point a sample (paper 5)."""

    kernel: str = "none"  # none: one point, CLIP | linear: alpha is (1, 0) | gaussian | imq, with the linear kernel
    width: float = 0.75  # of gaussian: sigma; of imq: c
    alpha: list[float] = field(default_factory=lambda: [0.5, 0.5])  # alpha1 of the linear kernel, alpha2 of the other
    weights: str = "tanh"  # bound of a weight x: tanh: 100 tanh(x/100) | sigmoid: 100 sigmoid(x/100), positive
    reduce: str = "mean"  # mean | sum over the points of a set
    features_train: int = 1024  # D, random Fourier features, new ones each step
    features_eval: int = field(default=512, metadata=RESUMABLE)  # D in evaluation


@dataclass(kw_only=True)
class ModelConfig:
    """Two towers with the same embedding width E."""

    image: ImageTowerConfig = field(default_factory=ImageTowerConfig)
    text: TextTowerConfig = field(default_factory=TextTowerConfig)
    # run directory or checkpoint folder of the same model, whose weights this one starts from; null: as the towers say
    init: str | None = None
    embed_dim: int | None = None  # E; needed by timm: and hf: towers, fixed by the configuration of open_clip: ones
    projection_lr_factor: float = 1.0  # learning rate of the projections of timm: and hf: towers over optimizer.lr
    normalise: bool = True  # L2-normalised embeddings; false: paper 4's "Remove Normalization"
    points: PointsConfig = field(default_factory=PointsConfig)


@dataclass(kw_only=True)
class TemperatureConfig:
    """tau of the softmax; every objective sees 1/tau as `Embeddings.scale`."""

    kind: str = "learned"  # learned | fixed | linear | cosine
    tau: float = 0.07  # learned, linear, cosine: where it starts; fixed: its value
    # learned: how 1/tau depends on the parameter nu
    parameterisation: str = "exp"  # exp | scaled_exp: exp(nu / s) | softplus: log(1 + exp(nu)) | identity
    s: float = 2.0  # of scaled_exp
    min_scale: float = 0.01  # bounds of 1/tau
    max_scale: float = 100.0
    lr_factor: float = 1.0  # learning rate of the temperature over optimizer.lr
    # linear: from tau to tau_end; cosine: from tau to tau_end and back, `periods` times
    tau_end: float | None = None
    every: str = "epoch"  # epoch | step: when a schedule moves
    periods: float = 1.0
    bias: float | None = None  # initial value of a learned logit bias (SigLIP); null: none


@dataclass(kw_only=True)
class MixingConfig:
    """Exchange of parts of paired image and text embeddings before the objective (paper 4)."""

    kind: str = "none"  # none | hard | hard_rows | soft
    probability: float = 0.0  # p, share of the steps that mix


@dataclass(kw_only=True)
class OptimizerConfig:
    """The update; gains, biases and the temperature are not decayed."""

    kind: str = "adamw"  # adamw | sgd, plain, whose steps are as long as the gradients: for checks
    lr: float = 1e-3
    betas: list[float] = field(default_factory=lambda: [0.9, 0.98])
    eps: float = 1e-6
    weight_decay: float = 0.1


@dataclass(kw_only=True)
class ScheduleConfig:
    """Learning rate over the run: linear warm-up, then `kind`."""

    kind: str = "cosine"  # cosine | constant | cooldown (constant, then a line down)
    cooldown: float = 0.2  # share of the steps after the warm-up that kind=cooldown falls in
    warmup_steps: int = 100
    warmup_epochs: float | None = None  # instead of warmup_steps, if given
    warmup_lr: float = 0.0  # where the warm-up starts
    min_lr: float = 0.0  # where cosine and cooldown end


@dataclass(kw_only=True)
class TrainConfig:
    """Length, size and safety of a run."""

    epochs: int | None = None  # length of the run: either passes over the data
    samples: int | None = None  # or samples seen
    batch_size: int = MISSING  # B, over all ranks
    grad_clip: float | None = None  # bound of the global gradient norm; null: off
    # of the towers; the objective is always float32. fp32 | tf32: float32 with TF32 (10-bit mantissa) matrix products
    # and convolutions on GPUs | bf16 | fp16, with a scaled loss
    precision: str = "fp32"
    # micro-batches that a rank's part of the batch goes through the towers in, to save memory: the loss has all
    # negatives, and the result is that of 1 (but for batch statistics, which are of a micro-batch)
    accumulation: int = field(default=1, metadata=RESUMABLE)
    grad_checkpointing: bool = field(default=False, metadata=RESUMABLE)  # activations computed again, to save memory
    compile: bool = field(default=False, metadata=RESUMABLE)  # towers by torch.compile
    sync_batchnorm: bool = False  # batch statistics over all processes
    ema: float | None = None  # decay, per step, of averaged weights that are kept beside the others; null: none
    # steps in a row without a finite loss and gradient, each skipped, after which the run ends as diverged
    max_bad_steps: int = field(default=10, metadata=RESUMABLE)
    save_every: int = field(default=200, metadata=RESUMABLE)  # steps between checkpoints
    keep: int = field(default=2, metadata=RESUMABLE)  # checkpoints kept, the last ones
    # also keep every checkpoint whose step is a multiple of this
    keep_every: int | None = field(default=None, metadata=RESUMABLE)
    # min:NAME or max:NAME of what log.geometry_every measures, e.g. min:loss: the best checkpoint is saved and kept
    keep_best: str | None = field(default=None, metadata=RESUMABLE)
    copy_to: str | None = field(
        default=None, metadata=RESUMABLE
    )  # URL (fsspec's) that checkpoints are copied to; null: none
    max_minutes: float | None = field(
        default=None, metadata=RESUMABLE
    )  # wall clock, then the run saves and ends with 75
    device: str = field(default="auto", metadata=RESUMABLE)  # auto | cpu | cuda
    # where per-sample columns live: with the model, or on the CPU, which frees 4 bytes a sample and column on a GPU
    table_device: str = field(default="auto", metadata=RESUMABLE)  # auto | cpu
    processes: int = field(default=1, metadata=RESUMABLE)  # on this machine; the global batch is split over them


@dataclass(kw_only=True)
class LaunchConfig:
    """Machines and restarts; train.processes is their number on each machine. The same command on all of them."""

    nodes: int = field(default=1, metadata=RESUMABLE)  # machines
    rendezvous: str | None = field(
        default=None, metadata=RESUMABLE
    )  # HOST:PORT of one of the machines, where they meet
    max_restarts: int = field(
        default=3, metadata=RESUMABLE
    )  # of the processes after one was lost, from the last checkpoint


@dataclass(kw_only=True)
class LogConfig:
    """What is written while training."""

    every: int = field(default=10, metadata=RESUMABLE)  # steps between lines of log.jsonl
    # steps between measurements of gap, uniformity, alignment and margins (training/geometry_probe.py); 0: never
    geometry_every: int = field(default=0, metadata=RESUMABLE)
    geometry_pairs: int = field(default=512, metadata=RESUMABLE)
    geometry_on: str = field(default="held_out", metadata=RESUMABLE)  # held_out | train: where the pairs come from
    # zero-shot, retrieval and pairs on data.evaluation, in lines of these steps and of the last one; 0: never
    evaluate_every: int = field(default=0, metadata=RESUMABLE)
    wandb: str = field(default="off", metadata=RESUMABLE)  # off | offline | online
    project: str = field(default="clipx", metadata=RESUMABLE)  # of wandb


@dataclass(kw_only=True)
class RunConfig:
    """One training run: what `config.yaml` in the run directory holds."""

    name: str = MISSING  # run directory: <runs>/<name>/s<seed>
    recipe: str = MISSING
    arm: str = ""  # which of the recipe's `arms`; its overrides are in this config already
    claims: list[str] = field(
        default_factory=list, metadata=RESUMABLE
    )  # of the papers, that runs of this recipe bear on
    seed: int = 0
    runs: str = field(default="runs", metadata=RESUMABLE)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: dict[str, dict[str, Any]] = field(default_factory=dict)  # term -> its parameters and weight
    temperature: TemperatureConfig = field(default_factory=TemperatureConfig)
    mixing: MixingConfig = field(default_factory=MixingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    log: LogConfig = field(default_factory=LogConfig)


@dataclass(kw_only=True)
class EvalConfig:
    """One call of `clipx eval`; exactly one of checkpoint and model."""

    checkpoint: str | None = None  # a run directory (train.keep_best's checkpoint, else the last) or checkpoints/step_*
    model: str | None = None  # open_clip:NAME (random weights), open_clip:NAME/TAG or open_clip:NAME/FILE
    tasks: list[str] = field(default_factory=list)  # empty: all that fit the data sets
    datasets: list[str] = field(default_factory=list)  # NAME or kind:DIR (`clipx ls data`); empty: the run's own
    root: str = "data"  # folder in which data sets given by NAME lie
    prompts: str = "ensemble"  # ensemble | simple | a prompt of your own with {c} for the class name
    protocol: str = "corrected"  # of retrieval: corrected | paper (the floor of paper 1's evaluator, reproduced)
    pools: list[int] = field(default_factory=list)  # retrieval among so many images too, beside all of them
    out: str | None = None  # folder of the results; null: the run directory, or runs/<model>
    batch_size: int = 256
    workers: int = 2  # processes per rank that decode images
    device: str = "auto"  # auto | cpu | cuda
    precision: str = "fp32"  # fp32 | tf32 | bf16 | fp16 for the towers; scores are always float32 or better
    processes: int = 1  # on this machine; images and texts are split over them
    ema: bool = False  # the averaged weights of a checkpoint (train.ema)
    force: bool = False  # repeat finished evaluations
    wandb: str = "off"  # off | offline | online
    project: str = "clipx"  # of wandb
