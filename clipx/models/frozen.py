"""Frozen towers whose outputs are stored (data.features=true): what identifies them, and how they embed a batch.

Features are one of three outputs of a tower: the vector of its body, before a projection of clipx; its tokens, for
point sets; or the input of its last blocks, if these are trained (model.SIDE.trainable_blocks). They are identified by
a digest of weights, preprocessing, tokenizer and pooling, and by the versions of the libraries. A small file below
CLIPX_CACHE/frozen/towers keeps the digest: a frozen tower is not loaded if all its features are stored.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, Self

import torch
from torch import Tensor, nn

from clipx.config.schema import ModelConfig, RunConfig
from clipx.errors import UserError
from clipx.models import point_sets
from clipx.models.towers import blocks, build
from clipx.models.towers.base import ImageTower, InputsT, Projected, Standardise, TextTower, Tower
from clipx.models.towers.hf_towers import MaskedTokens, PooledText
from clipx.types import Pixels, Tokens, text_lengths
from clipx.utils.device import tf32
from clipx.utils.files import cache_home, content_hash, write_text

LIBRARIES = ("open_clip_torch", "timm", "transformers")  # whose code computes the outputs
SIDES = ("image", "text")
GIVEN = "embeddings"  # kind of tower of embeddings made elsewhere
MAX_WIDTH = 100_000
FORMAT = 4  # to be increased when the files that keep digests change, or a correction changes what a tower computes
# settings of a tower that change its outputs
IDENTITY = ("name", "pretrained", "size", "context_length", "pooling", "trainable_blocks")


@dataclass(eq=False)
class FrozenTower(Generic[InputsT]):
    """A frozen tower that is loaded when it first embeds a batch."""

    model: ModelConfig
    side: str  # "image" or "text"
    digest: str  # of all that determines the outputs, except for versions of libraries
    versions: str  # of the libraries whose code computes the outputs; "": an unknown tower, embeddings:WIDTH
    weights: str  # SHA-256 of the body's tensors
    shape: tuple[int, ...]  # of one output: (width,), (K, width) for tokens, (C, H, W); a text has at most K tokens
    embed_dim: int  # E, of the projection or of the tower itself
    projected: bool  # True: clipx adds a linear projection to this kind of tower
    inputs: InputsT
    precision: str  # of the stored outputs, data.feature_precision
    padding: int | None  # token id after the end of a text, which the tower masks; None: no token is masked

    @property
    def name(self) -> str:
        """Return the tower's name with its setting, for messages."""
        return f"model.{self.side}.name={getattr(self.model, self.side).name}"

    @cached_property
    def body(self) -> nn.Module:
        """Load the tower.

        Raises UserError: its weights have changed since the digest was computed, or it is unknown (embeddings:WIDTH).
        """
        if not self.versions:
            raise UserError(
                f"{self.name} has no tower that could embed new images or texts; allowed sets: embeddings:FOLDER, and "
                "held_out of a run with data=embeddings"
            )
        body, _, _ = _load(self.model, self.side)
        if weights_digest(body) != self.weights:
            _digest_file(self.model, self.side).unlink(missing_ok=True)
            raise UserError(f"{self.name}: its weights have just changed; run the same command again to use them")
        return body

    def __call__(self, batch: Tensor, device: torch.device) -> Tensor:
        """Map images [b, 3, H, W] or token ids [b, L] to float32 [b, *shape] on the CPU; padding tokens are zeros.

        Columns that are padding in all texts are left out: most texts are short. [b, K, width] may have fewer tokens.
        """
        if self.padding is not None:
            batch = batch[:, : max(1, int(text_lengths(batch, self.padding).max()))]
        with torch.no_grad(), tf32(False):
            outputs: Tensor = self.body.to(device)(batch.to(device))
        return outputs.float().cpu()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the tower itself: copies of a model share it."""
        return self


def frozen_towers(config: RunConfig) -> dict[str, FrozenTower[Any]]:
    """Return side -> tower whose features the run uses; {} without data.features. Raises UserError: as `build_towers`.

    Random weights (model.SIDE.pretrained=null) are drawn with seed 0, so that all runs share their features.
    """
    sides = [side for side in SIDES if config.data.features and getattr(config.model, side).frozen]
    return {side: _describe(config, side) for side in sides}


def whole_towers(config: RunConfig) -> dict[str, FrozenTower[Any]]:
    """Return side -> tower with all its blocks, for each side with both trainable blocks and model.SIDE.standardise.

    The statistics of its outputs are those of the trained blocks at the start of training.
    """
    model = config.model
    image, text = replace(model.image, trainable_blocks=0), replace(model.text, trainable_blocks=0)
    whole = replace(config, model=replace(model, image=image, text=text))
    towers = {side: getattr(model, side) for side in SIDES if config.data.features}
    scaled = [side for side, tower in towers.items() if tower.trainable_blocks and tower.standardise]
    return {side: _describe(whole, side) for side in scaled}


def build_towers(model: ModelConfig, load: bool, frozen: dict[str, FrozenTower[Any]]) -> tuple[ImageTower, TextTower]:
    """Build both towers of a run; of those in `frozen` only what takes features: the head, or last blocks and the head.

    `load=False` skips published weights, for loading a checkpoint afterwards. Raises UserError like
    `clipx.models.towers.build.build_towers`.
    """
    given: dict[str, Any] = {side: _of_features(tower, model, load) for side, tower in frozen.items()}
    return build.build_towers(model, load, **given)


def set_statistics(head: nn.Module, mean: Tensor, deviation: Tensor) -> None:
    """Set the mean and the standard deviation, [width] each, of a tower with model.SIDE.standardise."""
    for module in head.modules():
        if isinstance(module, Standardise):
            module.mean.copy_(mean)
            module.deviation.copy_(deviation)


def weights_digest(module: nn.Module) -> str:
    """Return the SHA-256 of the names and values of all tensors of a module."""
    sha = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        sha.update(name.encode())
        sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()


def _of_features(tower: FrozenTower[Any], model: ModelConfig, load: bool) -> Tower[Any]:
    """Return what takes a tower's features: its last blocks, if they are trained, and its projection, if it has one."""
    if n := getattr(model, tower.side).trainable_blocks:
        with _seed_0():
            whole = build.build_tower(model, tower.side, load)
        rest = blocks.after(whole.body, n, f"model.{tower.side}.trainable_blocks")
        if not isinstance(whole.module, Projected):
            return Tower(rest, rest, whole.embed_dim, tower.inputs)
        width = whole.module.width
        return Tower(Projected(rest, width, tower.embed_dim), rest, tower.embed_dim, tower.inputs)
    body, width = nn.Identity(), tower.shape[-1]
    if len(tower.shape) == 1 and not tower.projected:
        return Tower(body, body, width, tower.inputs)
    module = Projected(body, width, tower.embed_dim)
    if load and not tower.projected:  # tokens have lost the projection of the published tower
        _, published, _ = _load(model, tower.side)
        assert published is not None
        module.projection.weight.data = published.T.contiguous()
    return Tower(module, body, tower.embed_dim, tower.inputs)


def _describe(config: RunConfig, side: str) -> FrozenTower[Any]:
    """Return a tower with its digest, from the file that keeps it, else by loading the tower."""
    kind, _, width = getattr(config.model, side).name.partition(":")
    if kind == GIVEN:
        return _given(config, side, width)
    model, file = config.model, _digest_file(config.model, side)
    try:
        known = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        body, _, tower = _load(model, side)
        with _seed_0():
            example = _example(tower.inputs)
            if isinstance(body, blocks.Before):
                blocks.check(body, example, f"model.{side}.trainable_blocks")
            shape = list(body(example).shape[1:])
        known = {
            "weights": weights_digest(body),
            "architecture": content_hash(repr(body)),  # also the pooling, which no weight shows
            "shape": shape,
            "embed_dim": tower.embed_dim,
            "projected": isinstance(tower.module, Projected),
            "inputs": asdict(tower.inputs),
            "tokenizer": _tokenizer_digest(tower.inputs),
            "padding": body.padding if isinstance(body, PooledText | MaskedTokens | blocks.Before) else None,
        }
        write_text(file, json.dumps(known))
    inputs: Any
    if side == "image":
        pixels = known["inputs"]
        inputs = Pixels(**pixels | {"mean": tuple(pixels["mean"]), "std": tuple(pixels["std"])})
    else:
        inputs = Tokens(**known["inputs"] | {"clean": config.data.clean})
    parts = [known[key] for key in ("weights", "architecture", "shape", "tokenizer")]
    return FrozenTower(
        model=model,
        side=side,
        digest=content_hash([*parts, asdict(inputs)]),
        versions=_versions(),
        weights=known["weights"],
        shape=tuple(known["shape"]),
        embed_dim=known["embed_dim"],
        projected=known["projected"],
        inputs=inputs,
        precision=config.data.feature_precision,
        padding=known["padding"],
    )


def _given(config: RunConfig, side: str, width: str) -> FrozenTower[Any]:
    if not width.isdecimal() or not 1 <= int(width[:9]) <= MAX_WIDTH:  # int() refuses thousands of digits
        raise UserError(f"model.{side}.name={GIVEN}:{width}: expected {GIVEN}:WIDTH with 1..{MAX_WIDTH}")
    # of no use, because nothing is embedded, but every tower has them
    pixels = Pixels(1, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), "bicubic", "shortest")
    inputs: Any = pixels if side == "image" else Tokens("ViT-B-32", 77, config.data.clean)
    digest = content_hash([GIVEN, side, int(width)])
    return FrozenTower(
        model=config.model,
        side=side,
        digest=digest,
        versions="",
        weights=digest,
        shape=(int(width),),
        embed_dim=config.model.embed_dim or int(width),
        projected=True,
        inputs=inputs,
        precision=config.data.feature_precision,
        padding=None,
    )


def _digest_file(model: ModelConfig, side: str) -> Path:
    """Return the file that keeps a tower's digest under these settings, files and versions of libraries."""
    tower = getattr(model, side)
    settings = [getattr(tower, key, None) for key in IDENTITY]
    # an empty path would be the current folder
    local = [path for path in (tower.name.partition(":")[2], tower.pretrained) if path and Path(path).exists()]
    versions = [version("clipx"), _versions()]  # a new version of clipx may build a tower in another way
    settings += [model.embed_dim, model.points.kernel != "none"]
    key = [FORMAT, side, *settings, versions, [_stamps(path) for path in local]]
    return cache_home() / "frozen" / "towers" / f"{content_hash(key)}.json"


def _stamps(path: str) -> list[tuple[str, int, int]]:
    """Return name, size and time of a file, or of all files in a folder."""
    root = Path(path)
    files = [root] if root.is_file() else sorted(file for file in root.rglob("*") if file.is_file())
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _versions() -> str:
    return " ".join(version(library) for library in LIBRARIES)


def _load(model: ModelConfig, side: str) -> tuple[nn.Module, Tensor | None, Tower[Any]]:
    """Load a tower; return its frozen part, the projection [width, E] that a point set removes, and the tower.

    The frozen part is the body, or what comes before trainable blocks.
    """
    with _seed_0():
        tower = build.build_tower(model, side, load=True)
        body, projection = tower.body, None
        if n := getattr(model, side).trainable_blocks:
            body = blocks.Before(body, n, f"model.{side}.trainable_blocks")
        elif model.points.kernel != "none":
            tokens = point_sets.to_token_tower(tower.module, f"model.{side}.name={getattr(model, side).name}")
            body, projection = tokens.body, tokens.projection
    return body.eval().requires_grad_(False), projection, tower


@contextmanager
def _seed_0() -> Iterator[None]:
    """Draw random numbers on the CPU with seed 0, also in a forecast, whose default device is meta."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        yield


def _example(inputs: Pixels | Tokens) -> Tensor:
    """Return two random images, or a text."""
    if isinstance(inputs, Pixels):
        return torch.randn(2, 3, inputs.image_size, inputs.image_size)
    text = torch.arange(2, 2 + inputs.context_length).clamp(max=8)[None]  # all vocabularies have ids 0 to 8
    text[:, inputs.context_length // 2 :] = 0  # padding of most towers
    return text


def _tokenizer_digest(inputs: Pixels | Tokens) -> str:
    """Return a hash of the tokenizer's files, if it is a folder, else of its name; "" for an image tower."""
    if isinstance(inputs, Pixels):
        return ""
    folder = Path(inputs.tokenizer.removeprefix("hf:"))
    files = sorted(file for kind in ("*.json", "*.txt", "*.model") for file in folder.glob(kind))
    sha = hashlib.sha256(inputs.tokenizer.encode() if not files else b"")
    for file in files:
        sha.update(file.name.encode() + file.read_bytes())
    return sha.hexdigest()
