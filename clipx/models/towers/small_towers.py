"""Small towers for images of about 32 px, `small:NAME`; a training step takes a tenth of the time of micro-48.

Towers with CLIP's tokenizer embed 49,408 tokens; these embeddings are at least 98% of their parameters.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
from open_clip.transformer import TextTransformer, VisionTransformer
from torch import Tensor, nn

from clipx.config.scene_words import NAME, PADDING, VOCABULARY
from clipx.config.schema import ImageTowerConfig, TextTowerConfig, TowerConfig
from clipx.errors import UserError
from clipx.models.towers.base import ImageTower, Projected, TextTower
from clipx.types import Pixels, Tokens
from clipx.utils.registry import lookup

SIZE, EMBED_DIM = 32, 128  # pixels, E; both are defaults
STRIDE = 8  # pixels per cell or patch, along one side: 16 in an image of 32 px
CHANNELS = (16, 32, 80)  # of the convolutions
WIDTH, HEADS = 64, 2  # of the transformers
WORD_WIDTH, HIDDEN = 64, 128  # of the bag of words
CLIP_TOKENIZER = "ViT-B-32"  # the open_clip model whose tokenizer is used


class Convolutions(nn.Module):
    """Three convolutions of stride 2. No pooling: the output keeps all cells, so that objects can be counted."""

    def __init__(self, size: int) -> None:
        super().__init__()
        layers = [
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
            for a, b in pairwise((3, *CHANNELS))
        ]
        self.stages = nn.Sequential(*layers)
        self.width = CHANNELS[-1] * (size // STRIDE) ** 2

    def forward(self, image: Tensor) -> Tensor:
        """[b, 3, H, W] -> [b, width]."""
        cells: Tensor = self.stages(image)
        return cells.flatten(1)


class BagOfWords(nn.Module):
    """Mean of the words' vectors and a hidden layer, so word order has no effect."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.token_embedding = nn.EmbeddingBag(vocabulary, WORD_WIDTH, mode="mean", padding_idx=PADDING)
        self.hidden = nn.Sequential(nn.Linear(WORD_WIDTH, HIDDEN), nn.GELU())

    def forward(self, text: Tensor) -> Tensor:
        """int64 [b, L] -> [b, HIDDEN]."""
        features: Tensor = self.hidden(self.token_embedding(text))
        return features


def _conv(size: int, embed_dim: int) -> nn.Module:
    body = Convolutions(size)
    return Projected(body, body.width, embed_dim)


def _vit(size: int, embed_dim: int) -> nn.Module:
    tower: nn.Module = VisionTransformer(
        size, STRIDE, WIDTH, layers=2, heads=HEADS, mlp_ratio=4.0, output_dim=embed_dim
    )
    return tower


def _bag(vocabulary: int, length: int, embed_dim: int) -> nn.Module:
    return Projected(BagOfWords(vocabulary), HIDDEN, embed_dim)


def _transformer(vocabulary: int, length: int, embed_dim: int) -> nn.Module:
    tower: nn.Module = TextTransformer(length, vocabulary, WIDTH, heads=HEADS, layers=1, output_dim=embed_dim)
    return tower


# name -> function of (pixels, E), description
IMAGE: dict[str, tuple[Callable[[int, int], nn.Module], str]] = {
    "small:conv": (_conv, "three convolutions, 0.2 M parameters"),
    "small:vit": (_vit, "vision transformer, 2 layers, 17 tokens with the class token, for point sets"),
}


class TextKind(NamedTuple):
    """A text tower; `build` takes the vocabulary size, the context length L and E; `length` is the default L."""

    build: Callable[[int, int, int], nn.Module]
    tokenizer: str
    length: int
    description: str


VOCABULARIES = {NAME: VOCABULARY, CLIP_TOKENIZER: 49_408}  # tokenizer -> number of token ids
TEXT: dict[str, TextKind] = {
    # L = 32 holds all captions of scenes: the longest has 27 words
    "small:bag": TextKind(_bag, NAME, 32, "up to 32 scene words: bag of words"),
    # L = 16 truncates 5% of the training captions, and half of the captions that name all attributes
    "small:transformer": TextKind(
        _transformer, NAME, 16, "up to 16 scene words: transformer of 1 layer, for word order and point sets"
    ),
    "small:clip_bag": TextKind(_bag, CLIP_TOKENIZER, 32, "up to 32 CLIP tokens, for photographs: bag of tokens"),
    "small:clip_transformer": TextKind(
        _transformer, CLIP_TOKENIZER, 32, "up to 32 CLIP tokens, for photographs: transformer of 1 layer"
    ),
}


def build_image_tower(config: ImageTowerConfig, embed_dim: int | None, load: bool) -> ImageTower:
    """Build the tower with random weights. Raises UserError for an unknown name, weights, or an unsuitable size."""
    _refuse_weights(config, "model.image")
    build, _ = lookup(IMAGE, config.name, "model.image.name")
    size = config.size or SIZE
    if size % STRIDE:
        raise UserError(f"model.image.size={size} does not suit {config.name}; allowed: multiples of {STRIDE}")
    pixels = Pixels(size, OPENAI_DATASET_MEAN, OPENAI_DATASET_STD, "bicubic", "shortest")
    module = build(size, embed_dim or EMBED_DIM)
    return ImageTower(module, _body(module), embed_dim or EMBED_DIM, pixels)


def build_text_tower(config: TextTowerConfig, embed_dim: int | None, load: bool) -> TextTower:
    """Build the tower with random weights. Raises UserError for an unknown name, or weights."""
    _refuse_weights(config, "model.text")
    kind = lookup(TEXT, config.name, "model.text.name")
    length = config.context_length or kind.length
    module = kind.build(VOCABULARIES[kind.tokenizer], length, embed_dim or EMBED_DIM)
    return TextTower(module, _body(module), embed_dim or EMBED_DIM, Tokens(kind.tokenizer, length))


def describe() -> dict[str, str]:
    """Return name -> description of each tower."""
    image = {name: f"image tower, {SIZE} px: {about}" for name, (_, about) in IMAGE.items()}
    text = {name: f"text tower, {kind.description}" for name, kind in TEXT.items()}
    return image | text


def _refuse_weights(config: TowerConfig, key: str) -> None:
    if config.pretrained is not None:
        raise UserError(f"{key}.pretrained={config.pretrained}: {config.name} has no published weights; allowed: null")


def _body(module: nn.Module) -> nn.Module:
    """Return the part that `frozen` freezes."""
    return module.body if isinstance(module, Projected) else module
