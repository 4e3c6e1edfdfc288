"""Depth of a tower's parameters, for learning rates that fall from layer to layer (Bao et al. 2022, BEiT)."""

import re

# blocks as open_clip, timm and Hugging Face number them; of nested ones (stages.2.blocks.5) the outer number counts
BLOCK = re.compile(r"(?:^|\.)(?:resblocks|blocks?|stages|layers?|h)\.?(\d+)\.")
INPUT = re.compile(r"embed|(?:cls|reg)_token|stem|ln_pre|(?:^|\.)(?:conv|bn)\d\.")


def depths(names: list[str]) -> dict[str, int]:
    """The layer of each parameter of one tower, by its name: 0 for the input's, then each block, last the output's.

    Blocks that count from 0 or from 1 (ResNet's layer1) come to the same.
    """
    number = {name: int(match[1]) for name in names if (match := BLOCK.search(name))}
    first, last = min(number.values(), default=0), max(number.values(), default=-1)
    below = {name: 0 if INPUT.search(name) else last - first + 2 for name in names if name not in number}
    return below | {name: n - first + 1 for name, n in number.items()}
