"""`clipx init`: write an example term, task or recipe with its test; `clipx cp`: copy a recipe."""

from importlib.resources import files
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path

from cli.settings.recipes import recipes
from clipx.errors import UserError
from clipx.utils.files import write_text
from clipx.utils.registry import lookup

# kind -> suffix of the file, and the command that uses it
KINDS = {
    "term": (".py", "clipx check recipe=demo plugins=[{name}] objective.{name}.weight=0.1"),
    "task": (".py", "clipx eval RUN plugins=[{name}] tasks=[{name}]"),
    "recipe": (".yaml", "clipx train --config-dir . recipe={name} arm=clip"),
}


def init(arguments: list[str]) -> None:
    """Run `clipx init term|task|recipe NAME`: write NAME.py or NAME.yaml, and test_NAME.py, into this folder.

    Raises UserError: an unknown kind, an invalid or taken name, or a file that exists.
    """
    if len(arguments) != 2:
        raise UserError(f"`clipx init` needs {'|'.join(KINDS)} NAME")
    kind, name = arguments
    suffix, use = lookup(KINDS, kind, "clipx init")
    _check_name(kind, name)
    templates = {f"{name}{suffix}": kind, f"test_{name}.py": f"test_{kind}"}
    for file in templates:
        _refuse_existing(Path(file))
    for file, template in templates.items():
        write_text(Path(file), filled(template, name))
    print(
        *templates,
        "an example: write your own in its place",
        f"test it:  python -m pytest test_{name}.py",
        f"use it:   {use.format(name=name)}",
        sep="\n",
    )


def filled(template: str, name: str) -> str:
    """Return the text of a template; for the name `my_term`, the class is `MyTerm`."""
    text = (files("cli") / "templates" / f"{template}.txt").read_text(encoding="utf-8")
    return text.replace("NAME", name).replace("CLASS", "".join(part.capitalize() for part in name.split("_")))


def cp(arguments: list[str]) -> None:
    """Run `clipx cp RECIPE FILE`: copy the recipe to a file, or to a folder under its own name.

    Raises UserError: an unknown recipe, or a target that exists or is not FILE.yaml in an existing folder.
    """
    if len(arguments) != 2:
        raise UserError("`clipx cp` needs RECIPE FILE.yaml")
    source = lookup(recipes(), arguments[0], "clipx cp")
    target = Path(arguments[1])
    target = target / source.name if target.is_dir() else target
    if target.suffix != ".yaml" or not target.parent.is_dir():
        raise UserError(f"clipx cp {arguments[0]} {target}: the target must be FILE.yaml in a folder that exists")
    _refuse_existing(target)
    write_text(target, source.read_text(encoding="utf-8"))
    print(target, f"use it:   clipx train --config-dir {target.parent} recipe={target.stem}", sep="\n")


def _check_name(kind: str, name: str) -> None:
    if not name.isascii() or not name.isidentifier() or name != name.lower() or iskeyword(name) or not name.strip("_"):
        raise UserError(
            f"clipx init {kind} {name}: the name must be lower-case letters, digits and _, and no keyword of Python"
        )
    if kind == "recipe":
        taken = name in recipes()
    else:
        from clipx.objectives import TERMS  # imports torch
        from evaluation.tasks import TASKS

        taken = find_spec(name) is not None or name in (TERMS if kind == "term" else TASKS)
    if taken:
        raise UserError(f"clipx init {kind} {name}: this name is taken; choose another one")


def _refuse_existing(file: Path) -> None:
    if file.exists():
        raise UserError(f"{file} exists; choose another name, or remove it")
