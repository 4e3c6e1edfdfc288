"""The console on which commands print tables and verdicts."""

import os

from rich.console import Console

UNLIMITED = 1000  # characters; wider than any row of a table


def stdout_console(least: int = 0) -> Console:
    """Return a console for standard output.

    It is as wide as the terminal or as COLUMNS, at least `least` characters. In a pipe or a file, without COLUMNS, rows
    and sentences are not wrapped, so that grep finds whole lines.
    """
    found = Console(highlight=False)
    fits = found.is_terminal or "COLUMNS" in os.environ
    return Console(highlight=False, width=max(found.width, least) if fits else UNLIMITED)
