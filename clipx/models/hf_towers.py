"""Text towers of Hugging Face, `hf:NAME_OR_FOLDER`: the class token's output and a projection to E.

open_clip's own adapter has no entry for DistilBERT (papers 1 and 3). The name gives configuration and tokenizer,
`pretrained` the weights. Shapes of the models in configs/hf are known without the hub.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clipx.config import TextTowerConfig
from clipx.errors import UserError, one_line
from clipx.hub import quiet_hub
from clipx.models.base import Projected, TextTower
from clipx.types import Tokens

KEY = "model.text"
CONTEXT_LENGTH = 77  # as CLIP's; the encoders themselves take 512 tokens, at many times the cost
KNOWN = Path(__file__).parent / "configs" / "hf"


class ClassToken(nn.Module):
    """A transformer encoder's output at the first token, padding masked."""

    def __init__(self, encoder: nn.Module, padding: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.padding = padding  # token id

    def forward(self, text: Tensor) -> Tensor:
        """int64 [b, L] -> [b, width]."""
        output = self.encoder(input_ids=text, attention_mask=(text != self.padding).long())
        hidden: Tensor = output.last_hidden_state
        return hidden[:, 0]


def build(config: TextTowerConfig, embed_dim: int | None, load: bool) -> TextTower:
    """The tower of the settings; with `load=False` weights are left out.

    Raises:
        UserError: no configuration or weights there, no encoder with a class token, no E, or too long a context.
    """
    from transformers import AutoModel

    source = config.name.partition(":")[2]
    if embed_dim is None:
        raise UserError(f"model.embed_dim= is needed for {KEY}.name={config.name}: the width that it is projected to")
    shape = _shape(source)
    length = (
        min(CONTEXT_LENGTH, shape.max_position_embeddings) if config.context_length is None else config.context_length
    )
    if length > shape.max_position_embeddings:
        raise UserError(
            f"{KEY}.context_length={length} is more than the {shape.max_position_embeddings} tokens of {config.name}"
        )
    if config.pretrained is None or not load:
        encoder: Any = AutoModel.from_config(shape, dtype=torch.float32)  # type: ignore[no-untyped-call]
    else:
        encoder = _pretrained(config.pretrained, source, shape)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # on top of the class token; ours is the projection, and unused weights break DDP
    body = ClassToken(encoder, shape.pad_token_id)
    tokens = Tokens(tokenizer=config.name, context_length=length)
    return TextTower(Projected(body, shape.hidden_size, embed_dim), body, embed_dim, tokens)


def _shape(source: str) -> Any:
    """transformers' configuration, from a folder, from ours, or from the hub."""
    from transformers import AutoConfig

    known = KNOWN / f"{source.removeprefix('distilbert/')}.json"
    folder = Path(source).is_dir()
    local = source if folder else str(known) if known.is_file() else ""
    if folder and not (Path(source) / "config.json").is_file():  # or transformers 4 and 5.0 guess from the name
        raise UserError(f"{KEY}.name=hf:{source} has no usable config.json: there is no such file")
    try:
        with quiet_hub(fetching=not local):
            shape = AutoConfig.from_pretrained(local or source)
    except Exception as error:  # the hub's client raises a dozen kinds
        if folder:
            raise UserError(f"{KEY}.name=hf:{source} has no usable config.json: {one_line(error)}") from error
        raise UserError(
            f"{KEY}.name=hf:{source} is neither a folder with a config.json nor could it be fetched from the hub: run "
            f"`hf download {source}` where there is a network, or give a local folder, hf:FOLDER ({one_line(error)})"
        ) from error
    needed = ("hidden_size", "max_position_embeddings", "pad_token_id")
    if shape.is_encoder_decoder or any(getattr(shape, key, None) is None for key in needed):
        raise UserError(
            f"{KEY}.name=hf:{source} ({shape.model_type}) is not a text encoder with a class token, such as BERT"
        )
    return shape


def _pretrained(weights: str, source: str, shape: Any) -> nn.Module:
    """The encoder with the weights of a file, a folder or the hub.

    Raises:
        UserError: they are not there, or leave a parameter without a value.
    """
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    path = Path(weights)
    local = path.exists()
    try:
        if path.is_file():
            encoder, missing = _from_file(path, shape)
        else:
            with quiet_hub(fetching=not local):
                encoder, report = AutoModel.from_pretrained(
                    weights, config=shape, dtype=torch.float32, output_loading_info=True
                )
            missing = list(report["missing_keys"])
    except Exception as error:  # the hub's client and torch.load raise a dozen kinds
        if local:
            raise UserError(
                f"{KEY}.pretrained={weights} does not hold weights of hf:{source}: {one_line(error)}"
            ) from error
        raise UserError(
            f"{KEY}.pretrained={weights}: the weights are not on this machine and could not be fetched; run "
            f"`hf download {weights}` where there is a network, or give a local file or folder in place of the name, "
            f"or null for random weights ({one_line(error)})"
        ) from error
    model: nn.Module = encoder
    missing = [key for key in missing if "pooler" not in key]
    if missing:
        raise UserError(
            f"{KEY}.pretrained={weights} does not hold weights of hf:{source}: {len(missing)} are missing, "
            f"{missing[0]} among them"
        )
    return model


def _from_file(path: Path, shape: Any) -> tuple[Any, list[str]]:
    """The encoder with the weights of a file, and the names of those that the file does not have."""
    from safetensors.torch import load_file
    from transformers import AutoModel

    encoder = AutoModel.from_config(shape, dtype=torch.float32)  # type: ignore[no-untyped-call]
    if path.suffix == ".safetensors":
        weights = load_file(path)
    else:
        weights = torch.load(path, weights_only=True, map_location="cpu")
    prefix = f"{encoder.base_model_prefix}."  # with a head on top, as most are published
    found = encoder.load_state_dict({k.removeprefix(prefix): v for k, v in weights.items()}, strict=False)
    return encoder, list(found.missing_keys)
