"""A small DistilBERT folder in the layout of a hub download, and settings of a run that uses it."""

import json
import string
from pathlib import Path

import torch

from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig

WORDS = ["a", "red", "green", "blue", "picture", "number", "is", "of"]
SHAPE = {"vocab_size": 1100, "dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 40}


def write_distilbert(folder: Path, weights: bool = False, tokenizer: bool = True) -> Path:
    """Write config.json and, if asked for, random weights and tokenizer files, in the layout of `hf download`."""
    from transformers import AutoConfig, AutoModel

    folder.mkdir(parents=True, exist_ok=True)
    shape = AutoConfig.for_model("distilbert", **SHAPE)
    if weights:
        torch.manual_seed(3)
        AutoModel.from_config(shape).save_pretrained(folder)  # type: ignore[no-untyped-call]
    shape.save_pretrained(folder)
    if tokenizer:
        letters = [*string.ascii_lowercase, *string.digits]
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters), *WORDS]
        (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n")
        kind = {"tokenizer_class": "DistilBertTokenizer", "do_lower_case": True}
        (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    return folder


def write_bert(folder: Path, kind: str = "bert") -> Path:
    """Write the config.json of a BERT of two layers, or of the relative `kind`."""
    from transformers import AutoConfig

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    AutoConfig.for_model(kind, vocab_size=1100, max_position_embeddings=40, **sizes).save_pretrained(folder)
    return folder


def settings(text: Path | str, image: str = "timm:test_resnet", embed_dim: int | None = 16) -> RunConfig:
    """Return settings of a run with a small timm image tower and the hf: text tower `text`, a folder or a name."""
    return RunConfig(
        model=ModelConfig(
            image=ImageTowerConfig(name=image, size=32),
            text=TextTowerConfig(name=f"hf:{text}", context_length=12),
            embed_dim=embed_dim,
        )
    )
