"""The last n blocks of a frozen tower that are trained (model.SIDE.trainable_blocks=n).

A block is what layer_decay numbers: a layer of a transformer, a stage of a convolutional network. Whatever the tower
computes before these n blocks is frozen; they and all that follows are trained.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from types import MethodType
from typing import Any

import torch
from open_clip.transformer import TextTransformer
from torch import Tensor, nn

from clipx.errors import UserError, one_line
from clipx.models.towers.hf_towers import PooledText

# block numbers in names of open_clip, timm and Hugging Face; in nested names (stages.2.blocks.5) the outer number
BLOCK = re.compile(r"(?:^|\.)(?:resblocks|blocks?|stages|layers?|h)\.?(\d+)\.")
# parameters of the input layer, among those before the blocks
INPUT = re.compile(r"emb|(?:cls|reg)_token|stem|ln_pre|norm_pre|(?:^|\.)(?:conv|bn)\d\.")
# methods of timm and open_clip that prepare the tokens of an image, between patches and blocks
PREPARING = ("_pos_embed", "_embeds")


class Before(nn.Module):
    """The part of a tower before its last n blocks; returns the input of these blocks. It holds the whole tower."""

    def __init__(self, body: nn.Module, n: int, setting: str) -> None:
        super().__init__()
        self.body = body
        self.n = n
        self.first, _, _ = _split(body, n, setting)
        self.padding = body.padding if isinstance(body, PooledText) else None  # token id; texts are stored without it

    def forward(self, x: Tensor) -> Tensor:
        """[b, 3, H, W] or int64 [b, L] -> [b, tokens, width] or [b, channels, H', W']; zeros at a text's padding."""
        try:
            with self.body.get_submodule(self.first).register_forward_pre_hook(_stop):
                self.body(x)
        except _ReachedError as reached:
            hidden: Tensor = reached.args[0]
            read = READ.get(type(self.body))
            return hidden if read is None else hidden * read(self.body, x)[..., None]
        raise ValueError("the tower does not call its blocks")

    def extra_repr(self) -> str:
        """Show n, which no weight shows."""
        return f"n={self.n}"


def _until_end(tower: TextTransformer, text: Tensor) -> Tensor:
    """Return True up to the end of the text, whose id is the largest; causal attention reads nothing after it."""
    return torch.arange(text.shape[1], device=text.device) <= text.argmax(dim=1, keepdim=True)


# text tower -> function of it and token ids [b, L] to bool [b, L], False for tokens that its output does not depend on
READ: dict[type, Callable[[Any, Tensor], Tensor]] = {
    PooledText: lambda tower, text: text != tower.padding,
    TextTransformer: _until_end,
}


class _ReachedError(Exception):
    """Ends the forward pass of a tower; its argument is the input of the first trained block."""


def _stop(block: nn.Module, inputs: tuple[Any, ...]) -> None:
    raise _ReachedError(inputs[0])


class _Given(nn.Module):
    """Returns its input, in place of a module whose output is stored."""

    def forward(self, *inputs: Tensor | None, inputs_embeds: Tensor | None = None, **others: Any) -> Tensor:
        """Return the first input that is not None."""
        return next(given for given in (inputs_embeds, *inputs) if given is not None)


def _text_transformer(tower: Any, hidden: Tensor) -> Tensor:
    """Do the last part of open_clip's forward pass: [b, L, width] -> [b, E], from the last token that is not zero."""
    x = tower.ln_final(tower.transformer(hidden, attn_mask=tower.attn_mask))
    pooled: Tensor = x[torch.arange(len(x), device=x.device), hidden.any(dim=-1).sum(dim=1) - 1]
    return pooled if tower.text_projection is None else pooled @ tower.text_projection


def freeze(body: nn.Module, n: int, setting: str) -> list[nn.Module]:
    """Freeze the parameters of a tower that are used before its last n blocks; return the modules used before them.

    `setting` names n in errors, e.g. model.image.trainable_blocks. Raises UserError: the tower has fewer blocks.
    """
    _, modules, parameters = _split(body, n, setting)
    for name in parameters:
        body.get_parameter(name).requires_grad_(False)
    return [body.get_submodule(name).requires_grad_(False) for name in modules]


def after(body: nn.Module, n: int, setting: str) -> nn.Module:
    """Reduce a tower, in place, to its last n blocks and what follows; it takes the outputs of `Before`.

    The names of the weights stay. Raises UserError like `freeze`.
    """
    _, modules, parameters = _split(body, n, setting)
    for name in modules:
        parent, _, child = name.rpartition(".")
        container = body.get_submodule(parent)
        if isinstance(container, nn.ModuleList | nn.Sequential):
            delattr(container, child)
        else:
            setattr(container, child, _Given())
    for name in parameters:
        parent, _, child = name.rpartition(".")
        setattr(body.get_submodule(parent), child, None)
    if isinstance(body, TextTransformer):
        body.forward = MethodType(_text_transformer, body)
    for method in PREPARING:
        if hasattr(body, method):
            setattr(body, method, lambda x: x)
    return body


@torch.no_grad()
def check(before: Before, x: Tensor, setting: str) -> None:
    """Raise UserError if `before` and `after` together do not compute what the tower computes for x."""
    reason = "its two parts compute something else"
    try:
        parts: Tensor = after(deepcopy(before.body), before.n, setting)(before(x))
        same = torch.allclose(parts, before.body(x), rtol=1e-3, atol=1e-4)
    except Exception as error:  # a tower of another structure raises many types
        same, reason = False, one_line(error)
    if not same:
        raise UserError(
            f"{setting}={before.n} with data.features=true: this tower cannot be divided before a block ({reason}); "
            "allowed: 0, or data.features=false"
        )


def _split(body: nn.Module, n: int, setting: str) -> tuple[str, list[str], list[str]]:
    """Return the first of the last n blocks, the outermost modules before it, and other parameters used before it."""
    matches = [(name, BLOCK.search(name)) for name, _ in body.named_parameters()]
    blocks = {int(match[1]): name[: match.end() - 1] for name, match in matches if match}
    if n > len(blocks):
        raise UserError(f"{setting}={n}: the tower has {len(blocks)} numbered blocks; allowed: 0..{len(blocks)}")
    first = blocks[sorted(blocks)[-n]]
    names = [name for name, _ in body.named_modules()]
    modules: list[str] = []
    for name in names[1 : names.index(first)]:  # in the order in which they are built
        if not first.startswith(f"{name}.") and not any(name.startswith(f"{outer}.") for outer in modules):
            modules.append(name)
    around = {"", *(first[:i] for i, character in enumerate(first) if character == ".")}  # modules that contain it
    parameters = [name for name, _ in body.named_parameters() if name.rpartition(".")[0] in around]
    return first, modules, [name for name in parameters if INPUT.search(name)]
