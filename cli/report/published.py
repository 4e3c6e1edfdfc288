"""`clipx report published`: open_clip's results on a data set, or of a model."""

from rich import box
from rich.table import Table
from rich.text import Text

from cli.settings.arguments import split
from clipx.errors import UserError
from clipx.utils.registry import did_you_mean
from clipx.utils.terminal import stdout_console
from evaluation.reference.columns import COLUMNS, titles_of
from evaluation.reference.models import PublishedModel, models, source

MAIN = ["Average perf. on 38 datasets", "ImageNet 1k", "Flickr", "MSCOCO"]  # the last two: mean R@1 of both directions
WIDTH = 150  # characters of the widest table, which has six recall columns


def published(arguments: list[str]) -> None:
    """Run `clipx report published SET|MODEL`: print a table, best model first."""
    (name,), _ = split(arguments, {}, "report published", "SET|MODEL")
    console = stdout_console(least=WIDTH)
    if titles := titles_of(name):
        table = _of_models(list(models().values()), titles)
    else:
        found = _find(name)
        table = _of_model(found[0]) if len(found) == 1 else _of_models(found, MAIN)
    console.print(table)
    console.print(Text(source()))


def _find(name: str) -> list[PublishedModel]:
    """Return the model `NAME/TAG`, or all models `NAME`."""
    wanted = name.removeprefix("open_clip:")
    found = [model for model in models().values() if wanted in (model.name, model.tower)]
    if not found:
        sets = [column.names[0] for column in COLUMNS]
        hint = did_you_mean(wanted, {*sets, *models(), *(model.tower for model in models().values())})
        example = "allowed: a set, such as imagenet or mscoco, or a model of open_clip, such as RN50/cc12m"
        raise UserError(f"clipx report published {name} is not known; {hint}{example}")
    return found


def _of_models(shown: list[PublishedModel], titles: list[str]) -> Table:
    table = Table(box=box.SIMPLE)
    table.add_column("model", no_wrap=True)
    for column in (*titles, "params (M)", "GFLOPs", "samples (M)"):
        table.add_column(column, justify="right")
    for model in sorted(shown, key=lambda model: -model.values[titles[0]]):
        table.add_row(Text(model.name), *(f"{model.values[title]:.4f}" for title in titles), *_size(model))
    return table


def _of_model(model: PublishedModel) -> Table:
    parameters, flops, samples = _size(model)
    seen = f", {samples} million samples of {model.data}" if samples != "-" else f", {model.data}"
    table = Table(title=f"{model.name}: {parameters} million parameters, {flops} GFLOPs{seen}", box=box.SIMPLE)
    table.add_column("result")
    table.add_column("value", justify="right")
    for title, value in model.values.items():
        table.add_row(title, f"{value:.4f}")
    return table


def _size(model: PublishedModel) -> tuple[str, str, str]:
    """Return millions of parameters, billions of FLOPs and millions of samples seen."""
    samples = "-" if model.samples is None else f"{model.samples / 1e6:,.0f}"
    return f"{model.parameters:.0f}", f"{model.flops:.1f}", samples
