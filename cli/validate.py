"""`make validate-evaluation`: compare results with published numbers; python -m cli.validate [root=DIR] [out=DIR].

The numbers are zero-shot and retrieval results of published weights (evaluation/published.csv), as fractions. Where
they are mean per-class accuracies, our mean per-class accuracy is compared. Exit code 1 if a number differs, 3 if
nothing was compared because weights or data are missing.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from cli.exit_codes import exit_code_of
from cli.settings.arguments import parse_options
from clipx.config.setting import setting
from clipx.errors import UserError
from clipx.utils.terminal import stdout_console
from evaluation.claims.measures import canonical_name
from evaluation.datasets.files import short_name
from evaluation.datasets.named import present
from evaluation.published import COLUMNS, models
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
# Data sets whose original layout has no test split. Our random split differs from the published one, so a published
# value anywhere in our 95% interval agrees.
OTHER_SPLIT = ("caltech101", "eurosat", "sun397")

Numbers = Mapping[tuple[str, str], float]  # (data set, metric) -> value
Evaluate = Callable[[str, str, list[str]], list[Result]]  # model, task, data sets -> rows


@dataclass(kw_only=True)
class Options:
    """The options of the validation."""

    root: str = setting("data", "folder of the data sets")
    out: str = setting("runs/validation", "folder of the results")


@dataclass(frozen=True)
class ValidatedNumber:
    """A measured number and the published one."""

    model: str
    dataset: str
    metric: str
    measured: float
    published: float
    verdict: str  # agrees | differs

    @property
    def difference(self) -> float:
        """Measured minus published, in percentage points."""
        return 100 * (self.measured - self.published)


def validate(arguments: list[str]) -> None:
    """Print measured and published numbers, and the commands that fetch missing weights and data.

    Raises:
        UserError: an unknown or repeated argument, or a corrupt data set.
        SystemExit: a number differs from the published one, or none was compared.
    """
    from clipx.utils.device import choose_device
    from clipx.utils.files import cache_home
    from evaluation.embedding.encoder import folder_name, from_open_clip
    from evaluation.runner import evaluate

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
    lines = compare_all(published, Path(options.root), fetch_command, run)
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


def published_numbers(model: str) -> Numbers:
    """Return the published numbers of a model on the sets of COPIES: the main metric, or R@1 in both directions."""
    values = models()[model.removeprefix("open_clip:")].values
    return {
        (name, column.metric): values[column.title]
        for name in COPIES
        for column in COLUMNS
        if canonical_name(name) in column.names and not column.metric.endswith(("@5", "@10"))
    }


def compare_all(
    published: Mapping[str, Numbers], root: Path, fetch_weights: Callable[[str], str], evaluate: Evaluate
) -> list[ValidatedNumber]:
    """Evaluate all models and data sets that are present; print the comparison, then a command for each missing one.

    Args:
        published: model -> numbers to compare with.
        root: folder of the data sets, in their original layout or as CLIP-benchmark's copies.
        fetch_weights: returns the command that fetches a model's weights, "" if they are present.
        evaluate: scores a model on data sets.
    """
    names = dict.fromkeys(name for values in published.values() for name, _ in values)
    specs = {name: spec for name in names if (spec := _find_dataset(name, root))}
    missing = [
        f"{name}: `hf download clip-benchmark/{copy} --repo-type dataset --local-dir {root / copy}`"
        for name, copy in COPIES.items()
        if name in names and name not in specs
    ]
    numbers: list[ValidatedNumber] = []
    for model, values in published.items():
        if command := fetch_weights(model):
            missing.append(f"{model}: {command}")
            continue
        rows = []
        for task in ("zeroshot", "retrieval"):
            wanted = dict.fromkeys(name for name, metric in values if ("recall" in metric) == (task == "retrieval"))
            if present_specs := [specs[name] for name in wanted if name in specs]:
                rows += evaluate(model, task, present_specs)
        numbers += _compare(model, values, specs, rows)
    _show(numbers, missing)
    return numbers


def _compare(model: str, values: Numbers, specs: Mapping[str, str], rows: list[Result]) -> list[ValidatedNumber]:
    by_metric = {(row.dataset, row.metric): row for row in rows}
    numbers = []
    for (name, metric), value in values.items():
        kind, _, folder = specs.get(name, "").partition(":")
        row = by_metric.get((short_name(Path(folder)) if kind == "wds" else kind, metric))
        if row is not None:
            other_split = name in OTHER_SPLIT and kind != "wds"
            agrees = abs(row.value - value) <= TOLERANCE + ROUNDING or (other_split and row.low <= value <= row.high)
            verdict = "agrees" if agrees else "differs"
            numbers.append(ValidatedNumber(model, name, metric, row.value, value, verdict))
    return numbers


def _find_dataset(name: str, root: Path) -> str:
    """Return the data set's spec, preferring CLIP-benchmark's copy; "" if missing."""
    if (root / COPIES[name]).is_dir():
        return f"wds:{root / COPIES[name]}"
    return f"{name}:{root}" if present(name, root) else ""


def _show(numbers: list[ValidatedNumber], missing: list[str]) -> None:
    table = Table(box=box.SIMPLE)
    for column in ("model", "data set", "metric", "measured", "published", "difference", "verdict"):
        table.add_column(column, no_wrap=True)
    for number in numbers:
        values = (f"{100 * number.measured:.2f}", f"{100 * number.published:.2f}", f"{number.difference:+.2f}")
        table.add_row(number.model, number.dataset, number.metric, *values, number.verdict)
    console = stdout_console()
    if numbers:
        console.print(table)
    for entry in missing:
        console.print(f"missing: {entry}", markup=False, soft_wrap=True)  # keeps commands whole
    agreed = sum(number.verdict == "agrees" for number in numbers)
    summary = (
        f"{agreed} of {len(numbers)} numbers agree: within {100 * TOLERANCE:.1f} points, or within our 95% interval if "
        "the test split is our own"
    )
    console.print(summary if numbers else "nothing was checked")


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: validate(sys.argv[1:])))
