"""`make validate-evaluation`: compare results with published numbers; python -m cli.validate [root=DIR] [out=DIR].

The numbers are zero-shot and retrieval results of published weights (evaluation/published.csv), as fractions. Where
they are mean per-class accuracies, our mean per-class accuracy is compared. Exit code 1 if a number differs, 3 if
nothing was compared because weights or data are missing.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from cli.exit_codes import exit_code_of
from cli.settings.arguments import parse_options
from clipx.config.setting import setting
from clipx.errors import UserError
from clipx.utils.terminal import empty_table, stdout_console
from evaluation.datasets.files import short_name
from evaluation.datasets.named import present
from evaluation.published import PublishedValue, models, published_value
from evaluation.types import Result

NOTHING_COMPARED = 3  # exit code
TOLERANCE = 0.003  # largest absolute difference that counts as agreement
ROUNDING = 5e-5  # rounding error of the published values, which have four digits

MODELS = (
    "open_clip:ViT-B-32/openai",
    "open_clip:ViT-B-16/openai",
    "open_clip:RN50/openai",
    "open_clip:ViT-B-32/laion2b_s34b_b79k",
)

COPIES = {  # data set -> COPY: the published values were measured on clip-benchmark/COPY of the hub
    "imagenet": "wds_imagenet1k",
    "cifar10": "wds_vtab-cifar10",
    "cifar100": "wds_vtab-cifar100",
    "clevr_count": "wds_vtab-clevr_count_all",
    "caltech101": "wds_vtab-caltech101",
    "flowers102": "wds_vtab-flowers",
    "pets": "wds_vtab-pets",
    "aircraft": "wds_fgvc_aircraft",
    "food101": "wds_food101",
    "dtd": "wds_vtab-dtd",
    "sun397": "wds_sun397",
    "cars": "wds_cars",
    "eurosat": "wds_vtab-eurosat",
    "stl10": "wds_stl10",
    "mscoco": "wds_mscoco_captions",
}
Evaluate = Callable[[str, str, list[str]], list[Result]]  # model, task, data sets -> rows
Compared = tuple[Result, PublishedValue]


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
    from clipx.utils.device import choose_device, loader_processes
    from clipx.utils.files import cache_home
    from evaluation.embedding.encoder import folder_name, from_open_clip
    from evaluation.embedding.features import Loading
    from evaluation.runner import evaluate

    others, options = parse_options(arguments, Options, "validate")
    if others:
        raise UserError(f"{' '.join(arguments)} must be root=DIR, out=DIR or both")
    device = choose_device("auto")
    loading = Loading(256, loader_processes("auto"), device, cache_home() / "features")

    def run(model: str, task: str, specs: list[str]) -> list[Result]:
        return evaluate(from_open_clip(model, device), specs, [task], Path(options.out) / folder_name(model), loading)

    compared = compare_all(MODELS, Path(options.root), fetch_command, run)
    if not compared:
        sys.exit(NOTHING_COMPARED)
    if not all(agrees(*one) for one in compared):
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


def agrees(row: Result, value: PublishedValue) -> bool:
    """Return True if a row is within TOLERANCE of the published value, or its interval has it and the split is ours."""
    of_our_split = row.dataset == value.column.drawn
    near = abs(value.difference) <= TOLERANCE + ROUNDING
    return near or (of_our_split and row.low <= value.published <= row.high)


def compare_all(
    names: Iterable[str], root: Path, fetch_weights: Callable[[str], str], evaluate: Evaluate
) -> list[Compared]:
    """Evaluate all models and data sets that are present; print the comparison, then a command for each missing one.

    What is compared: the main metric of a set with classes, R@1 in both directions of a set with captions.

    Args:
        names: `open_clip:NAME/TAG` of each model.
        root: folder of the data sets, in their original layout or as CLIP-benchmark's copies, which are preferred.
        fetch_weights: returns the command that fetches a model's weights, "" if they are present.
        evaluate: scores a model on data sets.
    """
    specs: dict[str, list[str]] = {}  # task -> data sets
    copies: dict[str, str] = {}  # name of a copy in result rows (that of its target, if it is a link) -> COPY
    missing: list[str] = []
    for name, copy in COPIES.items():
        found = specs.setdefault("retrieval" if name == "mscoco" else "zeroshot", [])
        if (root / copy).is_dir():
            copies[short_name(root / copy)] = copy
            found.append(f"wds:{root / copy}")
        elif present(name, root):
            found.append(f"{name}:{root}")
        else:
            command = f"hf download clip-benchmark/{copy} --repo-type dataset --local-dir {root / copy}"
            missing.append(f"{name}: `{command}`")
    compared: list[Compared] = []
    for name in names:
        if command := fetch_weights(name):
            missing.append(f"{name}: {command}")
            continue
        model = models()[name.removeprefix("open_clip:")]
        for row in (row for task, sets in specs.items() if sets for row in evaluate(name, task, sets)):
            row = replace(row, dataset=copies.get(row.dataset, row.dataset))
            value = published_value(row, model)
            if value is not None and not row.metric.endswith(("@5", "@10")):
                compared.append((row, value))
    _show(compared, missing)
    return compared


def _show(compared: list[Compared], missing: list[str]) -> None:
    texts = ("model", "data set", "metric", "verdict")
    table = empty_table((*texts[:3], "measured", "published", "difference", "verdict"), texts)
    for row, value in compared:
        numbers = (f"{100 * row.value:.2f}", f"{100 * value.published:.2f}", f"{100 * value.difference:+.2f}")
        verdict = "agrees" if agrees(row, value) else "differs"
        table.add_row(value.model.name, row.dataset, row.metric, *numbers, verdict)
    console = stdout_console()
    if compared:
        console.print(table)
    for entry in missing:
        console.print(f"missing: {entry}", markup=False, soft_wrap=True)  # keeps commands whole
    agreed = sum(agrees(*one) for one in compared)
    rule = f"within {100 * TOLERANCE:.1f} points, or within our 95% interval if the test split is our own"
    console.print(f"{agreed} of {len(compared)} numbers agree: {rule}" if compared else "nothing was checked")


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: validate(sys.argv[1:])))
