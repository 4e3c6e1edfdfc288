"""`make validate-evaluation`: compare results with published numbers; python -m cli.validate [root=DIR] [out=DIR].

Exit code 1 if a number differs, 3 if nothing was compared because weights or data are missing.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from cli.exit_codes import exit_code_of
from cli.settings.arguments import parse_options
from clipx.config.setting import setting
from clipx.errors import UserError

NOTHING_COMPARED = 3  # exit code


@dataclass(kw_only=True)
class Options:
    """The options of the validation."""

    root: str = setting("data", "folder of the data sets")
    out: str = setting("runs/validation", "folder of the results")


def validate(arguments: list[str]) -> None:
    """Print measured and published numbers, and the commands that fetch missing weights and data.

    Raises:
        UserError: an unknown or repeated argument, or a corrupt data set.
        SystemExit: a number differs from the published one, or none was compared.
    """
    from clipx.utils.device import choose_device
    from clipx.utils.files import cache_home
    from evaluation.embedding.encoder import folder_name, from_open_clip
    from evaluation.reference.validation import MODELS, published_numbers
    from evaluation.reference.validation import validate as compare
    from evaluation.runner import evaluate
    from evaluation.types import Result

    others, options = parse_options(arguments, Options, "validate")
    if others:
        raise UserError(f"{' '.join(arguments)} must be root=DIR, out=DIR or both")
    device = choose_device("auto")

    def run(model: str, task: str, specs: list[str]) -> list[Result]:
        encoder = from_open_clip(model, device)
        out = Path(options.out) / folder_name(model)
        workers = min(8, os.cpu_count() or 1)
        return evaluate(
            encoder, specs, [task], out, cache_home() / "features", batch_size=256, workers=workers, device=device
        )

    published = {model: published_numbers(model) for model in MODELS}
    lines = compare(published, Path(options.root), fetch_command, run)
    if not lines:
        sys.exit(NOTHING_COMPARED)
    if any(line.verdict == "differs" for line in lines):
        sys.exit(1)


def fetch_command(model: str) -> str:
    """Return the command that fetches the weights of `open_clip:NAME/TAG`; "" if the hub's cache holds them."""
    import open_clip
    from huggingface_hub import try_to_load_from_cache
    from open_clip.constants import HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME

    name, _, tag = model.partition(":")[2].partition("/")
    repository = open_clip.get_pretrained_cfg(name, tag)["hf_hub"].rstrip("/")
    for file in (HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME):
        if isinstance(try_to_load_from_cache(repository, file), str):
            return ""
    return f"`hf download {repository}`"


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: validate(sys.argv[1:])))
