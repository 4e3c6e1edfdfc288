"""Texts to token ids, by the tokenizer that belongs to a text tower."""

from collections.abc import Callable

from torch import Tensor

from clipx.errors import UserError
from clipx.hub import quiet_hub
from clipx.types import Inputs

Tokenizer = Callable[[list[str]], Tensor]  # -> int64 [n, L]


def build(inputs: Inputs) -> Tokenizer:
    """open_clip's tokenizer of a text tower, cut and padded to its context length.

    Raises:
        UserError: a Hugging Face tokenizer that is neither here nor can be fetched.
    """
    import open_clip

    text = (open_clip.get_model_config(inputs.tokenizer) or {}).get("text_cfg", {})
    try:
        with quiet_hub(fetching="hf_tokenizer_name" in text):
            tokenizer: Tokenizer = open_clip.get_tokenizer(inputs.tokenizer, context_length=inputs.context_length)
    except Exception as error:  # the hub's client raises a dozen kinds
        reason = " ".join(str(error).split()[:30])
        raise UserError(f"the tokenizer of {inputs.tokenizer} could not be loaded: {reason}") from error
    return tokenizer
