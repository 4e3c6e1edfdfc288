"""Text towers of Hugging Face, `hf:NAME_OR_FOLDER`: one vector from the encoder's outputs and a projection to E.

open_clip's own adapter does not support DistilBERT, which papers 1 and 3 use. The name selects configuration and
tokenizer, `pretrained` selects the weights. Configurations in configs/hf are read without the hub.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import _CACHED_NO_EXIST, errors, hf_hub_download, try_to_load_from_cache
from timm.models import load_state_dict
from torch import Tensor, nn

from clipx.config.schema import TextTowerConfig
from clipx.errors import UserError, one_line
from clipx.models.towers.base import LOCAL_OR_RANDOM, Projected, TextTower
from clipx.types import Tokens
from clipx.utils.hub import download_error, quiet_hub
from clipx.utils.trust import load_json

KEY = "model.text"
CONTEXT_LENGTH = 77  # as CLIP; most encoders accept 512 tokens, at many times the cost
STATED = {  # key of sentence-transformers -> pooling
    "pooling_mode_cls_token": "class",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
POOLING_FILE = "1_Pooling/config.json"  # of sentence-transformers
CONFIGS = Path(__file__).parent / "configs" / "hf"


def _last(hidden: Tensor, mask: Tensor) -> Tensor:
    positions = mask * torch.arange(mask.shape[1], device=mask.device)
    return hidden[torch.arange(len(hidden), device=hidden.device), positions.argmax(dim=1)]


# model.text.pooling -> function of outputs [b, L, width] and mask bool [b, L], False for padding, to [b, width]
POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "class": lambda hidden, mask: hidden[:, 0],
    "mean": lambda hidden, mask: (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1),
    "last": _last,
}


class PooledText(nn.Module):
    """One vector from the outputs of a transformer encoder; padding is masked."""

    def __init__(self, encoder: nn.Module, padding: int, pooling: str) -> None:
        super().__init__()
        self.encoder = encoder
        self.padding = padding  # token id
        self.pooling = pooling

    def forward(self, text: Tensor) -> Tensor:
        """int64 [b, L] -> [b, width]; if cut to the last blocks (blocks.py), from their input [b, L, width]."""
        if text.is_floating_point():
            mask = text.any(dim=-1)  # padding is zeros
            output = self.encoder(inputs_embeds=text, attention_mask=mask.long())
        else:
            mask = text != self.padding
            output = self.encoder(input_ids=text, attention_mask=mask.long())
        return POOLINGS[self.pooling](output.last_hidden_state, mask)

    def extra_repr(self) -> str:
        """State the pooling in `repr`, whose hash identifies a frozen tower: no weight shows it."""
        return f"pooling={self.pooling}"


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
    source = config.name.partition(":")[2]
    if embed_dim is None:
        raise UserError(f"model.embed_dim= is needed for {KEY}.name={config.name}: the width of the projection")
    hf_config = _load_config(source)
    if config.pretrained is None or not load:
        encoder = _from_config(hf_config, source)
    else:
        encoder = _load_pretrained(config.pretrained, source, hf_config)
    longest = _longest(encoder, hf_config)
    length = min(CONTEXT_LENGTH, longest) if config.context_length is None else config.context_length
    if length > longest:
        raise UserError(f"{KEY}.context_length={length} is more than the {longest} tokens of {config.name}")
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # unused, since the projection replaces it; DDP fails on unused weights
    body = PooledText(encoder, hf_config.pad_token_id, config.pooling or _pooling_of(source))
    tokens = Tokens(tokenizer=config.name, context_length=length)
    return TextTower(Projected(body, hf_config.hidden_size, embed_dim), body, embed_dim, tokens)


def _longest(encoder: Any, shape: Any) -> int:
    """Return the largest number of tokens. RoBERTa and its relatives do not use the positions up to that of padding."""
    positions = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    unused = getattr(positions, "padding_idx", None)
    return int(shape.max_position_embeddings) - (0 if unused is None else unused + 1)


def _pooling_of(source: str) -> str:
    """Return the pooling that a folder or a repository of the hub states in POOLING_FILE, else class.

    Raises UserError: a pooling that is not in POOLINGS, or the file would have to be downloaded and cannot.
    """
    file = _pooling_file(source)
    if file is None:
        return "class"
    try:
        stated = load_json(file.read_text())
        return next(name for key, name in STATED.items() if stated.get(key))
    except (ValueError, AttributeError, StopIteration) as error:
        raise UserError(
            f"{KEY}.name=hf:{source}: {file} states no known pooling; set {KEY}.pooling to class, mean or last"
        ) from error


def _pooling_file(source: str) -> Path | None:
    """Return POOLING_FILE of a folder, or of the hub or its cache; None if there is none."""
    if Path(source).is_dir() or _known_config(source).is_file():
        file = Path(source) / POOLING_FILE
        return file if file.is_file() else None
    if try_to_load_from_cache(source, POOLING_FILE) is _CACHED_NO_EXIST:
        return None
    try:
        with quiet_hub(fetching=True):
            return Path(hf_hub_download(source, POOLING_FILE))
    except Exception as error:  # the hub client raises many types
        if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
            return None
        what, otherwise = f"{KEY}.name=hf:{source}: {POOLING_FILE}", f"set {KEY}.pooling to class, mean or last"
        raise download_error(what, f"`hf download {source}`", otherwise, error) from error


def _known_config(source: str) -> Path:
    return CONFIGS / f"{source.removeprefix('distilbert/')}.json"


def _load_config(source: str) -> Any:
    """Load transformers' configuration from a folder, configs/hf or the hub."""
    from transformers import AutoConfig

    known = _known_config(source)
    is_folder = Path(source).is_dir()
    local = source if is_folder else str(known) if known.is_file() else ""
    # without the file, transformers up to 5.0 guesses a configuration from the name
    if is_folder and not (Path(source) / "config.json").is_file():
        raise UserError(f"{KEY}.name=hf:{source} has no usable config.json: there is no such file")
    try:
        with quiet_hub(fetching=not local):
            shape = AutoConfig.from_pretrained(local or source, trust_remote_code=False)
    except Exception as error:  # the hub client raises many types
        if is_folder:
            raise UserError(f"{KEY}.name=hf:{source} has no usable config.json: {one_line(error)}") from error
        alternative = "give a local folder with a config.json, hf:FOLDER"
        raise download_error(f"{KEY}.name=hf:{source}", f"`hf download {source}`", alternative, error) from error
    needed = ("hidden_size", "max_position_embeddings", "pad_token_id")
    if shape.is_encoder_decoder or any(getattr(shape, key, None) is None for key in needed):
        raise UserError(
            f"{KEY}.name=hf:{source} ({shape.model_type}) is not a text encoder with a class token, such as BERT"
        )
    return shape


def _from_config(shape: Any, source: str) -> Any:
    """Return the encoder with random weights. Raises UserError: its sizes do not fit."""
    from transformers import AutoModel

    try:
        return AutoModel.from_config(shape, dtype=torch.float32, trust_remote_code=False)  # type: ignore[no-untyped-call]
    except Exception as error:  # sizes of somebody else's file raise many types
        raise UserError(f"{KEY}.name=hf:{source} has no usable config.json: {one_line(error)}") from error


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
            encoder = _from_config(shape, source)
            prefix = f"{encoder.base_model_prefix}."  # of the keys of weights that were saved with a head
            saved = load_state_dict(str(path), weights_only=True)
            found = encoder.load_state_dict({k.removeprefix(prefix): v for k, v in saved.items()}, strict=False)
            missing = list(found.missing_keys)
        else:
            with quiet_hub(fetching=not is_local):
                encoder, report = AutoModel.from_pretrained(
                    weights, config=shape, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
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
