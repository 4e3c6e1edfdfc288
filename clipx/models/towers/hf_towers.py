"""Text towers of Hugging Face, `hf:NAME_OR_FOLDER`: the output of the class token and a projection to E.

open_clip's own adapter does not support DistilBERT, which papers 1 and 3 use. The name selects configuration and
tokenizer, `pretrained` selects the weights. Configurations in configs/hf are read without the hub.
"""

from pathlib import Path
from typing import Any

import torch
from timm.models import load_state_dict
from torch import Tensor, nn

from clipx.config.schema import TextTowerConfig
from clipx.errors import UserError, one_line
from clipx.models.towers.base import LOCAL_OR_RANDOM, Projected, TextTower, download_error
from clipx.types import Tokens
from clipx.utils.hub import quiet_hub

KEY = "model.text"
CONTEXT_LENGTH = 77  # as CLIP; most encoders accept 512 tokens, at many times the cost
CONFIGS = Path(__file__).parent / "configs" / "hf"


class ClassToken(nn.Module):
    """Output of a transformer encoder at the first token; padding is masked."""

    def __init__(self, encoder: nn.Module, padding: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.padding = padding  # token id

    def forward(self, text: Tensor) -> Tensor:
        """int64 [b, L] -> [b, width]."""
        output = self.encoder(input_ids=text, attention_mask=(text != self.padding).long())
        hidden: Tensor = output.last_hidden_state
        return hidden[:, 0]


class MaskedTokens(nn.Module):
    """Outputs of a transformer encoder at all tokens, for point sets; those of padding are zeros."""

    def __init__(self, encoder: nn.Module, padding: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.padding = padding  # token id

    def forward(self, text: Tensor) -> Tensor:
        """int64 [b, L] -> [b, L, width]."""
        mask = text != self.padding
        hidden: Tensor = self.encoder(input_ids=text, attention_mask=mask.long()).last_hidden_state
        return hidden * mask[..., None]


def build_hf_tower(config: TextTowerConfig, embed_dim: int | None, load: bool) -> TextTower:
    """Build the tower; `load=False` skips the weights.

    Raises UserError for a missing configuration, missing weights, embed_dim=None, an encoder without a class token, or
    too long a context.
    """
    from transformers import AutoModel

    source = config.name.partition(":")[2]
    if embed_dim is None:
        raise UserError(f"model.embed_dim= is needed for {KEY}.name={config.name}: the width of the projection")
    shape = _load_config(source)
    longest = shape.max_position_embeddings
    length = min(CONTEXT_LENGTH, longest) if config.context_length is None else config.context_length
    if length > longest:
        raise UserError(f"{KEY}.context_length={length} is more than the {longest} tokens of {config.name}")
    if config.pretrained is None or not load:
        encoder = AutoModel.from_config(shape, dtype=torch.float32)  # type: ignore[no-untyped-call]
    else:
        encoder = _load_pretrained(config.pretrained, source, shape)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # unused, since the projection replaces it; DDP fails on unused weights
    body = ClassToken(encoder, shape.pad_token_id)
    tokens = Tokens(tokenizer=config.name, context_length=length)
    return TextTower(Projected(body, shape.hidden_size, embed_dim), body, embed_dim, tokens)


def _load_config(source: str) -> Any:
    """Load transformers' configuration from a folder, configs/hf or the hub."""
    from transformers import AutoConfig

    known = CONFIGS / f"{source.removeprefix('distilbert/')}.json"
    is_folder = Path(source).is_dir()
    local = source if is_folder else str(known) if known.is_file() else ""
    # without the file, transformers up to 5.0 guesses a configuration from the name
    if is_folder and not (Path(source) / "config.json").is_file():
        raise UserError(f"{KEY}.name=hf:{source} has no usable config.json: there is no such file")
    try:
        with quiet_hub(fetching=not local):
            shape = AutoConfig.from_pretrained(local or source)
    except Exception as error:  # the hub client raises many types
        if is_folder:
            raise UserError(f"{KEY}.name=hf:{source} has no usable config.json: {one_line(error)}") from error
        raise UserError(
            f"{KEY}.name=hf:{source} is not a folder with a config.json and could not be downloaded; run "
            f"`hf download {source}` where there is a network, or give a local folder, hf:FOLDER ({one_line(error)})"
        ) from error
    needed = ("hidden_size", "max_position_embeddings", "pad_token_id")
    if shape.is_encoder_decoder or any(getattr(shape, key, None) is None for key in needed):
        raise UserError(
            f"{KEY}.name=hf:{source} ({shape.model_type}) is not a text encoder with a class token, such as BERT"
        )
    return shape


def _load_pretrained(weights: str, source: str, shape: Any) -> Any:
    """Load the encoder's weights from a file, a folder or the hub; missing weights are an error."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    setting = f"{KEY}.pretrained={weights}"
    path = Path(weights)
    is_local = path.exists()
    try:
        if path.is_file():
            encoder = AutoModel.from_config(shape, dtype=torch.float32)  # type: ignore[no-untyped-call]
            prefix = f"{encoder.base_model_prefix}."  # of the keys of weights that were saved with a head
            saved = load_state_dict(str(path), weights_only=True)
            found = encoder.load_state_dict({k.removeprefix(prefix): v for k, v in saved.items()}, strict=False)
            missing = list(found.missing_keys)
        else:
            with quiet_hub(fetching=not is_local):
                encoder, report = AutoModel.from_pretrained(
                    weights, config=shape, dtype=torch.float32, output_loading_info=True
                )
            missing = list(report["missing_keys"])
    except Exception as error:  # the hub client and torch.load raise many types
        if is_local:
            raise UserError(f"{setting} does not hold weights of hf:{source}: {one_line(error)}") from error
        raise download_error(setting, f"`hf download {weights}`", LOCAL_OR_RANDOM, error) from error
    missing = [key for key in missing if "pooler" not in key]
    if missing:
        raise UserError(
            f"{setting} does not hold weights of hf:{source}: {len(missing)} are missing, such as {missing[0]}"
        )
    return encoder
