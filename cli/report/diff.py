"""`clipx report diff`: two models item by item, in the terminal and on a page with pictures."""

from itertools import groupby
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from cli.settings.arguments import flag, split
from clipx.utils.terminal import stdout_console
from evaluation.compare.items import Pair, pair_up
from evaluation.report.disagreement import p_text, write_disagreement


def diff(arguments: list[str]) -> None:
    """Run `clipx report diff`: print the differences, write diff.html, .md and .csv."""
    runs, given = split(arguments, {"out": "", "limited": "false"}, "report diff", "RUN RUN", 2)
    a, b = map(Path, runs)
    pairs = pair_up(a, b, flag(given["limited"], "limited"))
    names = pairs[0].a.model, pairs[0].b.model
    if names[0] == names[1]:
        names = runs[0], runs[1]
    _print(pairs, names)
    folder = a.parent.parent if a.parent.name == "checkpoints" else a
    written = write_disagreement(pairs, names, Path(given["out"] or folder))
    print(written.html, written.markdown, written.csv, sep="\n")


def _print(pairs: list[Pair], names: tuple[str, str]) -> None:
    console = stdout_console()
    console.print(Text(f"A: {names[0]}\nB: {names[1]}"))
    table = Table(
        box=box.SIMPLE, collapse_padding=True, caption="A - B with its 95% interval; p: McNemar", caption_justify="left"
    )
    table.add_column("metric", overflow="fold")
    for column in ("A", "B", "A - B", "p"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, of_set in groupby(pairs, lambda pair: pair.a.title):
        table.add_section()
        table.add_row(Text(name, style="bold"))
        for pair in of_set:
            value, low, high = pair.difference
            shares = (f"{one.right.mean():.3f}" for one in (pair.a, pair.b))
            interval = Text(f"{value:+.3f} [{low:+.3f}, {high:+.3f}]")
            table.add_row(Text(f"  {pair.a.metric}"), *shares, interval, p_text(pair.p_value))
    console.print(table)
