"""The house's rules: who may import whom, how long a file may be, what must load fast."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("cli", "clipx", "evaluation", "recipes")
MODULES = sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))
SIBLINGS = ("clipx.data", "clipx.models", "clipx.objectives", "clipx.theory")  # never import each other
# import nothing above themselves
LOW = ("clipx.types", "clipx.config.schema", "clipx.config.setting", "clipx.utils.registry", "clipx.errors")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """Modules that a file imports, anywhere in it, as full names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def forbidden(module: str, imported: str) -> bool:
    """Whether `module` breaks the import direction clipx <- evaluation <- cli, or clipx's own, with `imported`."""
    above = {"clipx": ("evaluation", "cli"), "evaluation": ("cli",), "cli": (), "recipes": PACKAGES[:3]}
    if any(within(imported, package) for package in above[module.split(".")[0]]):
        return True
    home = next((s for s in SIBLINGS if within(module, s)), None)
    if home and any(within(imported, s) for s in SIBLINGS if s != home):
        return True
    if home == "clipx.objectives" and within(imported, "clipx.distributed"):
        return True
    return module in LOW and within(imported, "clipx") and not any(within(imported, low) for low in LOW)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_downwards(path: Path) -> None:
    assert [i for i in sorted(imports(path)) if forbidden(name_of(path), i)] == []


@pytest.mark.parametrize(
    ("module", "imported", "expected"),
    [
        ("clipx.train", "evaluation.metrics.accuracy", True),
        ("evaluation.runner", "cli.main", True),
        ("clipx.models.clip", "clipx.data.loading.loader", True),
        ("clipx.objectives.clip", "clipx.distributed.gather", True),
        ("clipx.config.schema", "clipx.data.scenes", True),
        ("clipx.train", "clipx.data.loading.loader", False),
        ("cli.main", "evaluation.report.writer", False),
        ("clipx.utils.registry", "clipx.errors.UserError", False),
    ],
)
def test_the_rule_itself_tells_up_from_down(module: str, imported: str, expected: bool) -> None:
    assert forbidden(module, imported) is expected


def test_only_compose_imports_hydra() -> None:
    users = {name_of(p) for p in MODULES if any(within(i, "hydra") for i in imports(p))}
    assert users == {"cli.settings.compose"}


def test_no_file_is_above_400_lines() -> None:
    files = [*MODULES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "recipes").glob("*.yaml"), ROOT / "Makefile"]
    assert [p.name for p in files if len(p.read_text().splitlines()) > 400] == []


def test_fit_and_train_step_stay_readable() -> None:
    bodies = [ast.parse((ROOT / "clipx" / name).read_text()).body for name in ("train.py", "training/step.py")]
    functions = [n for body in bodies for n in body if isinstance(n, ast.FunctionDef)]
    lengths = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions}
    assert lengths["fit"] <= 80
    assert lengths["train_step"] <= 40


@pytest.mark.parametrize("heavy", ["torch", "hydra", "open_clip", "matplotlib", "transformers", "wandb"])
def test_help_loads_nothing_heavy(heavy: str) -> None:
    code = "import sys; sys.argv = ['clipx', '--help']; from cli.main import main; main(); "
    code += f"print({heavy!r} in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "False"


@pytest.mark.parametrize("optional", ["wandb", "matplotlib", "transformers", "datasets", "clip_benchmark"])
def test_training_does_not_load_what_it_does_not_use(optional: str) -> None:
    direct = {name_of(p) for p in MODULES for node in ast.parse(p.read_text()).body if imports_at_top(node, optional)}
    assert direct == set()


def imports_at_top(node: ast.stmt, package: str) -> bool:
    names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(within(n, package) for n in names)
