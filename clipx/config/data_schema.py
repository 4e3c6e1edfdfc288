"""The settings `data.*` of a run: training pairs and their preprocessing. clipx.config.schema has the others."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from clipx.config.setting import AT_LEAST_0, AT_LEAST_1, CROP_SCALE, POSITIVE, RAND_AUGMENT, SHARE, between, setting


@dataclass(kw_only=True)
class ScenesConfig:
    """Settings of rendered scenes: number, size, and faults of the training captions. Evaluation sets have no faults.

    A caption has at most one of the four faults omit, mislabelled, irrelevant_numbers and noise. The four settings are
    the probabilities of the faults, so they sum to at most 1.

    Captions leave out count, colour and shape according to either omit or the three settings count_share, colour_share
    and shape_share, which are independent of each other.
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
    test_images: int = setting(1_000, "test images of each class set, and images for retrieval", AT_LEAST_1)
    test_pairs: int = setting(60, "minimal pairs of each category", AT_LEAST_1)


@dataclass(kw_only=True)
class DataConfig:
    """Training pairs and their preprocessing."""

    name: str = setting(MISSING, "name of the data set in run names and tables")
    source: str = setting(
        MISSING, "scenes | shards | coco | karpathy | csv | tsv | hf; streams: webdataset | hf_stream"
    )
    root: str | None = setting(None, "folder of the data; scenes: null is the cache folder", resumable=True)
    split: str = setting("train", "folder below root with the training shards or images; hf: name of the split")
    captions: str = setting(
        "first",
        "first: the .txt member or first text; random: one of the sample's texts each epoch (shards: the list "
        "`captions` of the .json member); each: every caption with its image is a sample (coco, karpathy, csv, tsv)",
        choices=("first", "random", "each"),
    )
    annotations: str | None = setting(None, "coco, karpathy, csv, tsv: caption file below root")
    image_column: str = setting("image", "csv, tsv: column of paths, absolute or below root/split; hf: of images")
    caption_column: str = setting("caption", "csv, tsv, hf: column of captions")
    urls: list[str] = setting([], "webdataset: shards as PREFIX{00000..00099}.tar")
    url_weights: list[float] = setting([], "webdataset: relative frequency of each URL; empty: all equal")
    num_samples: int | None = setting(None, "streams: number of samples in an epoch", AT_LEAST_1)
    shuffle_buffer: int = setting(1000, "streams: shuffle buffer per worker and URL", AT_LEAST_1, unit="samples")
    decode: str = setting(
        "exact", "exact: PIL as in open_clip; fast: JPEG at reduced size, resized by torch", choices=("exact", "fast")
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
    workers: int = setting(2, "loader processes per rank", AT_LEAST_0, resumable=True)
    stall_seconds: float = setting(
        600.0, "longest wait for a batch before the run ends", POSITIVE, unit="seconds", resumable=True
    )
    max_bad_rate: float = setting(0.05, "share of bad samples above which the run stops", SHARE, resumable=True)
    evaluation: list[str] = setting([], "default data sets of `clipx eval`: KIND:FOLDER below root", resumable=True)
    kept: list[str] = setting(
        [],
        "fine-tuning: names of evaluation sets on which reports measure the fall of scores; all others show the gain",
        resumable=True,
    )
    before_projection: bool = setting(
        False, "`clipx eval` also probes the image features before the projection", resumable=True
    )
    scenes: ScenesConfig = field(default_factory=ScenesConfig)  # read only with source=scenes
