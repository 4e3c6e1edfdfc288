"""The knobs of the rendered data set: their ranges, and the caption faults among them."""

from clipx.config.schema import ScenesConfig
from clipx.errors import UserError

MAX_GRID = 9  # cells of the 3 x 3 grid on which objects are placed


def validate(config: ScenesConfig) -> None:
    """Raises UserError naming the first setting that is out of range."""
    _require("seed", config.seed, config.seed >= 0, "0 or more")
    _require("num_train", config.num_train, config.num_train >= 1, "1 or more")
    _require("image_size", config.image_size, 32 <= config.image_size <= 128, "32..128")
    _require("max_count", config.max_count, 2 <= config.max_count <= MAX_GRID, f"2..{MAX_GRID}")
    for name, value in faults(config).items():
        _require(name, value, 0 <= value <= 1, "0..1")
    _require("false_negatives", config.false_negatives, 0 <= config.false_negatives <= 1, "0..1")
    _require("popularity_skew", config.popularity_skew, 0 <= config.popularity_skew <= 3, "0..3")
    total = sum(faults(config).values())
    names = " + data.scenes.".join(faults(config))
    _require(names, total, total <= 1, "at most 1, as a caption has at most one fault")


def faults(config: ScenesConfig) -> dict[str, float]:
    """Fault -> share of the training captions that have it."""
    return {
        "omit": config.omit,
        "mislabelled": config.mislabelled,
        "irrelevant_numbers": config.irrelevant_numbers,
        "noise": config.noise,
    }


def _require(name: str, value: float, allowed: bool, range_: str) -> None:
    if not allowed:
        raise UserError(f"data.scenes.{name}={value:g} is out of range; allowed: {range_}")
