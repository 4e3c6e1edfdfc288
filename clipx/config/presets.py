"""Presets `data=NAME` and `objective=NAME`, sizes of published data sets, and checks of combined settings.

No import of torch, so the command line reports contradicting settings at once.
"""

from typing import Any

from clipx.config.schema import RunConfig, TowerConfig
from clipx.errors import UserError

SCENES = {
    "source": "scenes",
    "crop_scale": [1.0, 1.0],  # no crop: a cut-off object would make the count wrong
    "cache": "memory",
    "workers": 0,
    "scenes": {"image_size": 32, "num_train": 30_000},
    "evaluation": [f"wds:scenes_{feature}" for feature in ("colour", "count", "shape")]
    + ["captions:scenes_captions", "pairs:scenes_pairs"],
}
DATA: dict[str, dict[str, Any]] = {  # data.name is the preset's name
    "scenes": SCENES | {"captions": "random"},  # one of the five captions of each image
    # for the miniature recipes: few false negatives, so that small towers reach a small loss; large test sets
    "small_scenes": SCENES
    | {
        "held_out": 0.1,
        "scenes": {
            "image_size": 32,
            "num_train": 10_000,
            "omit": 0.0,
            # with 1.0, a model fails on zero-shot prompts that name one attribute
            "count_share": 0.9,
            "colour_share": 0.9,
            "shape_share": 0.9,
            "test_images": 5_000,
            "test_pairs": 500,
        },
    },
    # data.root is the data set as distributed, or contains train/, dev/ and test/ with shards; five captions per image
    "flickr8k": {
        "source": "shards",
        "captions": "random",
        "crop_scale": [0.5, 1.0],
        "flip": True,
        "evaluation": ["captions:test"],
    },
    # your own images, with captions in text files beside them or in folders of their classes: data.root=FOLDER
    "folder": {
        "source": "folder",
        "captions": "random",
        "crop_scale": [0.5, 1.0],
        "held_out": 0.1,
        "evaluation": ["held_out"],
    },
    # vectors made elsewhere, with heads on towers named embeddings:WIDTH
    "embeddings": {
        "source": "embeddings",
        "image_column": "img_emb",
        "caption_column": "text_emb",
        "split": ".",
        "features": True,
        "crop_scale": [1.0, 1.0],
        "workers": 0,
        "held_out": 0.1,
        "evaluation": ["held_out"],
    },
    # any img2dataset shards: data.root=FOLDER data.name=NAME
    "shards": {"source": "shards", "crop_scale": [0.5, 1.0], "split": "."},
    # the papers' training data; recipes set the image preprocessing, evaluation sets are in data.root/evaluation.
    # img2dataset writes the shards of cc3m and cc12m; DataComp's script writes the shards of datacomp_*
    "cc3m": {"source": "shards", "split": "train"},
    "cc12m": {"source": "shards", "split": "train"},
    "datacomp_small": {"source": "shards", "split": "shards"},
    "datacomp_medium": {"source": "shards", "split": "shards"},
    # as published: data.root contains train2014/ and annotations/
    "mscoco": {
        "source": "coco",
        "split": "train2014",
        "annotations": "annotations/captions_train2014.json",
        "captions": "random",
    },
    # Karpathy's splits: data.root contains flickr30k-images/ and dataset_flickr30k.json
    "flickr30k": {
        "source": "karpathy",
        "split": "flickr30k-images",
        "annotations": "dataset_flickr30k.json",
        "captions": "random",
    },
    # a table of paths and captions: data.root=FOLDER data.annotations=FILE
    "csv": {"source": "csv", "captions": "each", "crop_scale": [0.5, 1.0], "split": "."},
    "tsv": {"source": "tsv", "captions": "each", "crop_scale": [0.5, 1.0], "split": "."},
    # read with `datasets`: data.root=FOLDER or a name on the hub
    "hf": {"source": "hf", "crop_scale": [0.5, 1.0]},
    # remote or endless shards, resampled: data.urls=[...] data.num_samples=N
    "webdataset": {"source": "webdataset", "crop_scale": [0.5, 1.0]},
}

PAIRS = {  # pairs in published data sets; how many can be downloaded changes from year to year
    "cc3m": 2_786_288,  # paper 1, appendix C.5 (paper 3, appendix H: 2,723,200)
    "cc12m": 9_184_256,  # paper 3, appendix H
    "mscoco": 82_783,  # images of train2014
    "flickr30k": 29_000,  # images of Karpathy's training split
    "datacomp_small": 12_800_000,  # samples of DataComp's small pool
    "datacomp_medium": 128_000_000,  # of its medium pool
}
CAPTIONS = {"mscoco": 414_113, "flickr30k": 145_000}  # number of captions, each a pair with data.captions=each

CYCLIC = {"cyclic_inmodal": {"weight": 0.25}, "cyclic_crossmodal": {"weight": 0.25}}
TEACHER_TERMS = ("align_clip", "clip_refine", "distill", "drrho", "feature_distill")  # terms that need model.teacher
OBJECTIVES: dict[str, dict[str, dict[str, Any]]] = {
    "clip": {"clip": {}},
    # paper 1, appendix C.5: lambda = 0.1, CyCLIP's weights are 0.25
    "clip_reg": {"clip": {}, "positive": {"weight": 0.1}},
    "reg_only": {"positive": {"weight": 0.1}},
    # paper 1, Table 5: 0.1 / (B^2 - B) times the sum over all non-pairs of a batch of B pairs
    "clip_neg": {"clip": {}, "negative": {"weight": 0.1}},
    "cyclip": {"clip": {}, **CYCLIC},
    "cyclip_reg": {"clip": {}, **CYCLIC, "positive": {"weight": 0.1}},
    # best arm of paper 2: weight eta = 1000, with log1p
    "counting": {"clip": {}, "keyword": {"weight": 1000.0, "g": "log1p", "denominator": "own"}},
    "clip_distill": {"clip": {}, "distill": {}},  # open_clip's DistillClipLoss
    "clip_feature_distill": {"clip": {}, "feature_distill": {}},  # our weight
    "clip_rank": {"clip": {}, "rank": {"ramp": True}},  # RankCLIP
    # AlignCLIP with alpha = 1 and beta = 0.5; its code sums both directions of clip
    "clip_align": {"clip": {"average": False}, "align_clip": {"weight": 0.5}},
    # Grassucci et al. 2026: clip + mean squared distance of the pairs (2 + 2 x positive) + uniformity of centroids
    "clip_centroid": {"clip": {}, "positive": {"weight": 2.0}, "centroid_uniformity": {}},
    "clip_counterfactual": {"clip": {}, "counterfactual": {}},  # Paiss et al. 2023: weight lambda = 1
    # terms of 2023 to 2026 with the authors' settings as defaults; clip_refine and drrho need model.teacher
    **{name: {name: {}} for name in ("multi_positive", "negclip", "fastclip_v1", "fastclip_v2", "fastclip_v3")},
    **{name: {name: {}} for name in ("glofnd", "neuclip", "clip_refine", "drrho")},
    # baselines of paper 3
    "siglip": {"siglip": {}},  # its authors start at t = 10: set temperature.tau=0.1; for b see `fill_in_bias`
    "dcl": {"dcl": {"tau_plus": 0.1}},
    # paper 3, appendix H; set temperature.kind=fixed, because neither learns a temperature
    "sogclr": {"sogclr": {"gamma": 0.8}},
    "nuclr": {"nuclr": {"gamma": 0.8, "zeta0": -0.05, "freeze_epochs": 5}},
}


def num_pairs(config: RunConfig) -> int | None:
    """Return the number of pairs, held-out ones included; None if it is unknown before the data are read."""
    if config.data.source == "scenes":
        return config.data.scenes.num_train
    published = CAPTIONS if config.data.captions == "each" else PAIRS
    return config.data.num_samples or published.get(config.data.name)


def trained_part(tower: TowerConfig) -> str:
    """Describe what is trained: "adapters of rank 8", "frozen", ...; "" for the whole tower."""
    if tower.lora:
        return f"adapters of rank {tower.lora}"
    if tower.trainable_blocks:
        return "frozen but for " + ("the last block" if (n := tower.trainable_blocks) == 1 else f"the last {n} blocks")
    return "frozen" if tower.frozen else ""


def fill_in_bias(config: RunConfig) -> None:
    """Start SigLIP's bias at its authors' value if none is set, so that one sweep takes `objective=clip,siglip`."""
    if "siglip" in config.objective and config.temperature.bias is None:
        config.temperature.bias = -10.0


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
            "allowed: 0, or data.evaluation=[LAYOUT:FOLDER,...] with sets below data.root"
        )
    if config.data.augment == "device" and config.data.decode != "exact":
        raise UserError(f"data.augment=device needs whole images, not data.decode={config.data.decode}; allowed: exact")
    stored = config.data.features and config.model.image.frozen
    if config.data.cache == "memory" and config.data.decode != "exact" and not stored:
        raise UserError(
            f"data.cache=memory decodes images at full size, but data.decode={config.data.decode} decodes some at a "
            "reduced size; allowed: data.decode=exact, or data.cache=none"
        )
    _check_frozen(config)
    _check_features(config)
    check_batch_size(config, config.train.processes * config.launch.nodes)
    _check_length(config)


def _check_frozen(config: RunConfig) -> None:
    """Raise UserError for settings that train a part of a tower and contradict `frozen`."""
    divisible = config.data.source != "embeddings" and config.model.points.kernel == "none"
    for key, tower in (("image", config.model.image), ("text", config.model.text)):
        blocks, adapters = f"model.{key}.trainable_blocks={tower.trainable_blocks}", f"model.{key}.lora={tower.lora}"
        if tower.lora and tower.trainable_blocks:
            raise UserError(f"{adapters} and {blocks} are both set; allowed: one of them")
        if tower.trainable_blocks and not tower.frozen:
            raise UserError(f"{blocks} needs model.{key}.frozen=true: the other blocks are frozen")
        if tower.trainable_blocks and config.data.features and not divisible:
            raise UserError(
                f"{blocks} with data.features=true needs model.points.kernel=none, and not data.source=embeddings"
            )
        if tower.lora and tower.frozen:
            raise UserError(f"{adapters} trains adapters, so the tower is not frozen: set model.{key}.frozen=false")


def _check_features(config: RunConfig) -> None:
    """Raise UserError for settings that contradict data.features, or need it."""
    data, image, text = config.data, config.model.image, config.model.text
    named = [tower.name.startswith("embeddings:") for tower in (image, text)]
    is_embedding = data.source == "embeddings"
    if is_embedding or any(named):
        if not (is_embedding and data.features and all(named) and image.frozen and text.frozen):
            raise UserError(
                f"data.source={data.source} with model.image.name={image.name} and model.text.name={text.name}: "
                "vectors made elsewhere need data=embeddings, and both towers frozen and named embeddings:WIDTH"
            )
        if config.model.points.kernel != "none" or data.views is not None:
            raise UserError("data=embeddings has one vector a sample: set model.points.kernel=none data.views=null")
    needing = (
        (f"data.views={data.views}", data.views is not None, "image", image),
        ("model.image.standardise=true", image.standardise, "image", image),
        ("model.text.standardise=true", text.standardise, "text", text),
    )
    for setting, given, key, tower in needing:
        if given and not (data.features and tower.frozen):
            raise UserError(f"{setting} needs data.features=true and model.{key}.frozen=true")
    if not data.features:
        return
    if not (image.frozen or text.frozen):
        raise UserError(
            "data.features=true stores the outputs of frozen towers, but both towers are trained: set "
            "model.image.frozen=true or model.text.frozen=true"
        )
    if not image.frozen and data.cache != "memory":
        raise UserError(
            f"data.features=true with a trained image tower needs its pixels in memory, not data.cache={data.cache}; "
            "allowed: data.cache=memory, or model.image.frozen=true"
        )
    if data.augment == "device" and image.frozen:
        raise UserError(
            "data.augment=device augments images in each step, but data.features=true embeds them once; allowed: "
            "data.augment=workers"
        )
    augmentation = {
        f"data.crop_scale={data.crop_scale}": list(data.crop_scale) != [1, 1],
        "data.flip=true": data.flip,
        f"data.rand_augment={data.rand_augment}": data.rand_augment is not None,
    }
    for setting, given in augmentation.items():
        if given and image.frozen and data.views is None:
            raise UserError(
                f"{setting} changes images, but data.features=true stores one view of each; allowed: data.views=K, the "
                "number of views to store, or data.crop_scale=[1,1] data.flip=false data.rand_augment=null"
            )


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

    train.samples=0 is allowed: it saves the untrained model.
    """
    train = config.train
    if (train.epochs is None) == (train.samples is None):
        both = f"train.epochs={train.epochs} and train.samples={train.samples} are both set"
        given = "neither train.epochs nor train.samples is set" if train.epochs is None else both
        epochs = train.epochs or 3
        raise UserError(f"{given}; allowed: one of them, as in train.samples=null train.epochs={epochs}")
    if train.samples and train.samples < train.batch_size:
        raise UserError(
            f"train.samples={train.samples} is less than one step of train.batch_size={train.batch_size}; "
            "allowed: 0, which saves the untrained model, or at least one batch"
        )
