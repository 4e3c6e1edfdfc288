"""Rules of the code base: import order, sizes of folders, files and functions, modules that must load fast."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("cli", "evaluation", "clipx", "recipes")  # each imports only packages to its right
# The modules and subpackages directly below each package. Commas separate levels, spaces the members of a level. A
# member imports only members of lower levels, to its right.
LAYERS = {
    "cli": "main, completion, reproduce ls init, eval train check bench export theory validate report data, "
    "launcher settings, exit_codes",
    "evaluation": "report, compare reference, claims, during_training, runner, runs, tasks, datasets, embedding, "
    "metrics geometry, statistics, types",
    "clipx": "train, training, run, theory, models objectives data, sample_table, distributed geometry, "
    "config, utils, types errors verdict",
}
LEVELS = {
    f"{package}.{name}": level
    for package, levels in LAYERS.items()
    for level, names in enumerate(levels.split(", "))
    for name in names.split()
}
Graph = dict[str, set[str]]
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
# full module name -> file, and its syntax tree; a package `a.b` has the name `a.b.__init__`
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}
TREES = {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


def imports(tree: ast.Module) -> set[str]:
    """Return the full names that a module imports, also inside functions."""
    found = set()
    for node in ast.walk(tree):
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
        return PACKAGES.index(other) < PACKAGES.index(package)
    here, there = top(module), top(imported)
    if here == there or "__init__" in here + there or package == "recipes":
        return False
    return LEVELS[there] <= LEVELS[here]


GRAPH = import_graph(TREES)


@pytest.mark.parametrize("module", GRAPH)
def test_a_module_imports_only_lower_levels(module: str) -> None:
    assert [imported for imported in sorted(GRAPH[module]) if is_forbidden(module, imported)] == []


def test_imports_have_no_circle() -> None:
    assert circle(GRAPH) == []


@pytest.mark.parametrize(
    ("module", "imported", "expected"),
    [
        ("clipx.train", "evaluation.metrics", True),
        ("clipx.models.clip", "clipx.data.loading.loader", True),
        ("clipx.data.loading.loader", "clipx.models.clip", True),
        ("clipx.objectives.clip", "clipx.training.setup", True),
        ("evaluation.runs.results", "evaluation.report.blocks", True),
        ("clipx.train", "clipx.data.loading.loader", False),
        ("clipx.data.shards.index", "clipx.data.shards.tar", False),
        ("cli.main", "evaluation.report.writer", False),
    ],
)
def test_only_imports_of_higher_or_equal_levels_are_forbidden(module: str, imported: str, expected: bool) -> None:
    assert is_forbidden(module, imported) is expected


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("cli.launcher.torchrun", "from cli.main import main"),
        ("cli.launcher.torchrun", "def train():\n    from cli.train import train"),
        ("clipx.objectives.clip", "from clipx.objectives import siglip"),
        ("evaluation.tasks.rows", "from evaluation.tasks import retrieval"),
    ],
)
def test_a_circle_is_found(module: str, statement: str) -> None:
    changed = ast.parse(f"{MODULES[module].read_text()}\n{statement}\n")
    assert module in circle(GRAPH | import_graph({module: changed}))


def test_objectives_do_not_import_distributed() -> None:
    """The training step gathers the batch for all terms. A term uses only Part to exchange values with other ranks."""
    users = [m for m, imported in GRAPH.items() if top(m) == "clipx.objectives" and "clipx.distributed" in imported]
    assert users == []


def test_only_compose_imports_hydra() -> None:
    users = {module for module, tree in TREES.items() if any(i.split(".")[0] == "hydra" for i in imports(tree))}
    assert users == {"cli.settings.compose"}


def test_no_file_has_more_than_500_lines() -> None:
    others = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "recipes").glob("*.yaml"), ROOT / "Makefile"]
    assert [path.name for path in [*MODULES.values(), *others] if len(path.read_text().splitlines()) > 500] == []


def test_no_function_has_more_than_60_lines() -> None:
    nodes = [(module, node) for module, tree in TREES.items() for node in ast.walk(tree)]
    functions = [(m, node) for m, node in nodes if isinstance(node, ast.FunctionDef)]
    assert [f"{m}.{f.name}" for m, f in functions if (f.end_lineno or 0) - f.lineno >= 60] == []


def test_fit_and_train_step_stay_readable() -> None:
    bodies = TREES["clipx.train"].body + TREES["clipx.training.step"].body
    functions = [node for node in bodies if isinstance(node, ast.FunctionDef)]
    lengths = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions}
    assert lengths["fit"] <= 60
    assert lengths["train_step"] <= 40


def test_help_does_not_load_a_heavy_package() -> None:
    code = "import sys; sys.argv = ['clipx', '--help']; from cli.main import main; main(); "
    code += "print({'torch', 'hydra', 'open_clip', 'matplotlib', 'transformers', 'wandb'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "set()"


@pytest.mark.parametrize("optional", ["wandb", "matplotlib", "transformers", "datasets", "clip_benchmark"])
def test_no_module_imports_an_optional_package_at_top_level(optional: str) -> None:
    statements = [(module, node) for module, tree in TREES.items() for node in tree.body]
    assert [module for module, node in statements if imports_package(node, optional)] == []


def imports_package(node: ast.stmt, package: str) -> bool:
    """Return True if a top-level statement imports the package."""
    imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
    imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(name.split(".")[0] == package for name in imported)
