"""`clipx ls`: what there is, from the same tables that the settings are looked up in."""

import inspect
import re
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from clipx.utils.registry import lookup


def ls(arguments: list[str]) -> None:
    """Prints one list, or all short ones.

    Raises:
        UserError: an unknown list.
    """
    for name in arguments or ["recipes", "terms", "data", "tasks"]:
        rows = lookup(LISTS, name, "clipx ls")()
        table = Table("name", "what it is", title=name, title_justify="left", box=None, pad_edge=False)
        for key, text in rows.items():
            table.add_row(Text(key), Text(text))  # not markup, for which [NAME] is a style
        Console().print(table)


def _recipes() -> dict[str, str]:
    """The first sentence of each file, and its arms."""
    from cli.settings.compose import recipe, recipes

    rows = {}
    for name, path in recipes().items():
        comment = " ".join(re.findall(r"^# ?(.*)$", path.read_text(), re.MULTILINE))
        arms = ", ".join(recipe(name).arms)
        rows[name] = re.split(r"(?<=\.) ", comment)[0] + (f" Arms: {arms}" if arms else "")
    return rows


def _terms() -> dict[str, str]:
    """What each is, and its parameters (objective.NAME.PARAMETER) with their defaults."""
    from clipx.objectives import TERMS

    rows = {}
    for name, term in TERMS.items():
        known = inspect.signature(term).parameters.values()
        parameters = ", ".join(
            f"{p.name}={'null' if p.default is None else p.default}" for p in known if p.default is not p.empty
        )
        said = f"{_first_line(inspect.getmodule(term))} {_first_line(term)}"
        rows[name] = f"{said} Parameters: weight=1{', ' if parameters else ''}{parameters}"
    return rows


def _towers() -> dict[str, str]:
    from clipx.models.towers import build

    return build.describe_towers()


def _data() -> dict[str, str]:
    """Training data by name, and what `clipx eval` takes as datasets=[...]."""
    from clipx.config.presets import DATA
    from clipx.data.sources.opening import ROOTS
    from evaluation.datasets.named import NAMED
    from evaluation.datasets.opening import LAYOUTS

    training = {
        name: f"training data; data.root is {ROOTS[node['source']].format(node.get('split', 'train'))}"
        for name, node in DATA.items()
    }
    named = {f"datasets=[{name}]": known.what for name, known in NAMED.items()}
    return training | named | {f"datasets=[{kind}:PLACE]": _first_line(opener) for kind, opener in LAYOUTS.items()}


def _tasks() -> dict[str, str]:
    from evaluation.tasks import TASKS

    return {name: _first_line(inspect.getmodule(task)) for name, task in TASKS.items()}


def _claims() -> dict[str, str]:
    from evaluation.claims.table import CLAIMS

    return {c.id: f"{c.statement} [{', '.join(c.recipes) or c.program}]" for c in CLAIMS}


def _theory() -> dict[str, str]:
    from cli.theory import experiments

    return {name: _first_line(inspect.getmodule(e.settings)) for name, e in experiments().items()}


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


LISTS: Mapping[str, Callable[[], dict[str, str]]] = {
    "recipes": _recipes,
    "terms": _terms,
    "towers": _towers,
    "data": _data,
    "tasks": _tasks,
    "claims": _claims,
    "theory": _theory,
}
