"""Rules of the code base: import order, files and functions that a reader reads whole, modules that must load fast."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("cli", "evaluation", "clipx", "recipes")  # each imports only packages to its right
# The modules and subpackages directly below each package. Commas separate levels, spaces the members of a level. A
# member imports only members of lower levels, to its right.
LAYERS = {
    "cli": "main, completion, reproduce tune watch ls, "
    "eval train check bench export theory validate towers report data, launcher settings, exit_codes",
    "evaluation": "report, compare published, claims, during_training, runner, runs, tasks, datasets, embedding, "
    "metrics geometry, statistics, types",
    "clipx": "api, entry_point, train, training, run, theory, models objectives data, sample_table, "
    "distributed geometry, config, utils, types errors verdict",
}
LEVELS = {
    f"{package}.{name}": level
    for package, levels in LAYERS.items()
    for level, names in enumerate(levels.split(", "))
    for name in names.split()
}
# Each file is an entry of a table: an objective, a tower, a data source, a toy problem, a task, a paper, ...
ENTRIES = (
    "recipes.", "clipx.objectives.", "clipx.models.towers.", "clipx.data.sources.", "clipx.theory.",
    "evaluation.tasks.", "evaluation.claims.papers.", "evaluation.claims.measurements.", "evaluation.report.sections.",
)  # fmt: skip
COMMANDS = ("cli.main", "cli.completion", "cli.report.command")  # what only these import is a command
# Short files with one importer that stay: file -> why a reader wants it by itself
SHORT = {
    "cli.launcher.worker": "the program of a worker process, which torchrun starts by its name",
    "clipx.run.log": "train.py, the story of a run, writes it",
    "clipx.training.geometry_probe": "train.py, the story of a run, calls it once",
    "clipx.training.stop_signals": "train.py, the story of a run, calls it once",
    "evaluation.datasets.folders": "a layout of evaluation sets, as the files beside it",
    "evaluation.datasets.swaps": "a layout of evaluation sets, as the files beside it",
    "evaluation.geometry": "an import path that stays",
    "evaluation.runs.suites": "a table of suites",
}
UPWARDS = "clipx.api"  # the one module that may import higher packages, inside its functions
Graph = dict[str, set[str]]
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
# full module name -> file; a package `a.b` has the name `a.b.__init__`
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}


@cache
def trees() -> dict[str, ast.Module]:
    """Return module -> its syntax tree."""
    return {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


@cache
def graph() -> Graph:
    """Return the import graph of all modules."""
    return import_graph(trees())


@cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    """Return all nodes of a syntax tree. To find them takes longer than to parse the file."""
    return [*ast.walk(tree)]


@cache
def imports(tree: ast.Module) -> set[str]:
    """Return the full names that a module imports, also inside functions."""
    found = set()
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def import_graph(trees: dict[str, ast.Module]) -> Graph:
    """Return module -> modules of our packages that Python runs for its imports, including `__init__` modules.

    The `__init__` of a module's own package runs before the module, so it counts only if the import names the package
    itself. `from clipx.objectives import clip`, for example, names clipx.objectives. In a module of clipx.objectives
    this import makes a circle, because `clipx.objectives.__init__` imports all terms.
    """
    return {module: set().union(*(loaded(name, module) for name in imports(tree))) for module, tree in trees.items()}


def loaded(name: str, by: str) -> set[str]:
    """Return those modules of ours that Python runs if the module `by` imports `name` (a module or an attribute)."""
    prefixes = list(accumulate(name.split("."), "{}.{}".format))
    found = [module for prefix in prefixes for module in (f"{prefix}.__init__", prefix) if module in MODULES]
    return {module for module in found if module == found[-1] or not is_own_init(by, module)} - {by}


def is_own_init(module: str, imported: str) -> bool:
    """Return True if `imported` is the `__init__` of a package that `module` lies in."""
    return imported.endswith(".__init__") and module.startswith(imported.removesuffix("__init__"))


def circle(graph: Graph) -> list[str]:
    """Return the modules of one import circle; [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def top(module: str) -> str:
    """Return the first two parts of a module's name: `clipx.data` for `clipx.data.shards.index`."""
    return ".".join(module.split(".")[:2])


def is_forbidden(module: str, imported: str) -> bool:
    """Return True if `module` must not import `imported`."""
    package, other = module.split(".")[0], imported.split(".")[0]
    if package != other:
        if module == UPWARDS:
            return False
        return PACKAGES.index(other) < PACKAGES.index(package)
    here, there = top(module), top(imported)
    if here == there or "__init__" in here + there or package == "recipes":
        return False
    return LEVELS[there] <= LEVELS[here]


def test_a_module_imports_only_lower_levels() -> None:
    pairs = [(module, imported) for module in graph() for imported in sorted(graph()[module])]
    assert [f"{module} imports {imported}" for module, imported in pairs if is_forbidden(module, imported)] == []


def test_the_module_that_imports_upwards_does_it_inside_functions() -> None:
    top_level = {name for node in trees()[UPWARDS].body for name in imported_packages(node)}
    assert not {"cli", "evaluation", "pandas"} & top_level
    assert any(name.startswith("cli.") for name in graph()[UPWARDS])


def test_packages_do_not_import_tests() -> None:
    assert [m for m, tree in trees().items() if any(name.split(".")[0] == "tests" for name in imports(tree))] == []


def test_imports_have_no_circle() -> None:
    assert circle(graph()) == []


def test_objectives_do_not_import_distributed() -> None:
    """The training step gathers the batch for all terms. A term uses only Part to exchange values with other ranks."""
    users = [m for m, imported in graph().items() if top(m) == "clipx.objectives" and "clipx.distributed" in imported]
    assert users == []


def test_only_compose_imports_hydra() -> None:
    users = {module for module, tree in trees().items() if any(i.split(".")[0] == "hydra" for i in imports(tree))}
    assert users == {"cli.settings.compose"}


def test_no_file_has_more_than_600_lines() -> None:
    others = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "recipes").glob("*.yaml"), ROOT / "Makefile"]
    assert [path.name for path in [*MODULES.values(), *others] if len(path.read_text().splitlines()) > 600] == []


def shreds() -> dict[str, str]:
    """Return the modules below 150 lines that one other module imports, except entries of tables -> importer."""
    importers: dict[str, set[str]] = {module: set() for module in graph()}
    for module, imported in graph().items():
        for name in imported:
            importers[name].add(module)
    short = {module for module, path in MODULES.items() if len(path.read_text().splitlines()) < 150}
    single = {module: next(iter(users)) for module, users in importers.items() if len(users) == 1}
    entries = {m for m, by in single.items() if m.startswith(ENTRIES) or (m.startswith("cli.") and by in COMMANDS)}
    return {m: by for m, by in single.items() if m in short - entries and "__init__" not in m}


def test_a_short_file_with_one_importer_is_part_of_it() -> None:
    found = shreds()
    assert {module: by for module, by in found.items() if module not in SHORT} == {}
    assert SHORT.keys() - found.keys() == set(), "these files are gone, longer, or used by several others now"


def test_no_function_has_more_than_60_lines() -> None:
    functions = [(m, f) for m, tree in trees().items() for f in nodes(tree) if isinstance(f, ast.FunctionDef)]
    assert [f"{m}.{f.name}" for m, f in functions if (f.end_lineno or 0) - f.lineno >= 60] == []


def loaded_after(statements: list[str], packages: set[str]) -> list[set[str]]:
    """Return which of the packages a new process has loaded after each of the statements, run one after another."""
    code = "import sys\n" + "\n".join(f"{one}\nprint('loaded', *{packages} & set(sys.modules))" for one in statements)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("loaded")]


def call(command: str) -> str:
    """Return a statement that runs a command line."""
    run = "from cli.main import main\ntry: main()\nexcept SystemExit: pass"
    return f"sys.argv = 'clipx {command}'.split()\n{run}"


def test_commands_and_modules_load_only_what_they_need() -> None:
    """In the order of what they need, because a process keeps what it has loaded.

    Other commands that are refused: tests/cli/test_wrong_inputs.py.
    """
    modules = ("cli.watch", "cli.eval.many", "cli.report.command", "cli.reproduce.command", "cli.export.command")
    needs: dict[str, set[str]] = {"import clipx.api": set(), call("--help"): set(), call("ls"): set()}
    needs |= {call("export no_folder out=weights.pt"): set()} | {f"import {module}": {"hydra"} for module in modules}
    needs |= {call(f"{command}=x"): {"hydra"} for command in ("reproduce recipe", "bench recipe=demo data.rot")}
    heavy = {"torch", "hydra", "open_clip", "torchvision", "matplotlib", "transformers", "pandas", "sklearn", "wandb"}
    found = dict(zip(needs, loaded_after([*needs], heavy), strict=True))
    assert {
        statement: found[statement] - needed for statement, needed in needs.items() if found[statement] - needed
    } == {}


@pytest.mark.parametrize("module", ["cli.tune", "clipx.objectives.__init__"])
def test_the_names_of_objectives_and_clipx_tune_load_torch_but_no_slower_package(module: str) -> None:
    """By the imports at top level: to import torch in a new process takes seconds."""
    at_top = {name: [node for node in tree.body if imported_packages(node)] for name, tree in trees().items()}
    graph = import_graph({name: ast.Module(body, []) for name, body in at_top.items()})
    found, new = set[str](), {module}
    while new:
        found |= new
        new = set().union(*(graph[one] for one in new)) - found
    packages = set().union(*(imported_packages(node) for one in found for node in at_top[one]))
    assert "torch" in packages
    assert not {"open_clip", "torchvision", "matplotlib", "transformers", "pandas", "sklearn", "wandb"} & packages


def test_no_module_imports_a_slow_or_optional_package_at_top_level() -> None:
    packages = {"wandb", "matplotlib", "transformers", "datasets", "clip_benchmark", "pandas"}
    statements = [(module, node) for module, tree in trees().items() for node in tree.body]
    assert [module for module, node in statements if packages & imported_packages(node)] == []


def imported_packages(node: ast.stmt) -> set[str]:
    """Return the packages that a top-level statement imports."""
    imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
    imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return {name.split(".")[0] for name in imported}


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("cli.train", "def train():\n    from cli.main import main"),
        ("clipx.objectives.clip", "from clipx.objectives import siglip"),
    ],
)
def test_a_circle_is_found(module: str, statement: str) -> None:
    changed = ast.parse(f"{MODULES[module].read_text()}\n{statement}\n")
    assert module in circle(graph() | import_graph({module: changed}))
