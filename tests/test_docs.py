"""README, CONTRIBUTING and docs/: their commands, settings, make targets and files exist; some examples run."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from cli import ls, tune
from cli.bench import BENCHMARKS
from cli.data import data
from cli.main import COMMANDS
from cli.reproduce.plan import composed, make_plan
from cli.settings.arguments import CheckOptions, take_options
from cli.settings.compose import compose_evals, compose_run
from clipx.theory import THEORY
from tests.helpers import plugin_tables
from tests.helpers.folder import jpeg, write_shards

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = re.compile(r"^(?:srun (?:-\S+\s+)+)?(clipx|make) (.*)$")
FOLDERS = "clipx|evaluation|cli|tests|recipes|docs"
PATHS = re.compile(rf"(?<![\w/.<-])((?:{FOLDERS})/[\w./-]*\w/?)(?![\w*<{{])")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """Return (program, arguments) of each command in the code blocks of a page, with values for shell variables."""
    found = []
    for block in re.findall(r"```\n(.*?)```", page.read_text(), re.DOTALL):
        block = block.replace("$arm", "imq").replace("$SLURM_JOB_NUM_NODES", "8")
        for line in block.replace("\\\n", " ").replace("&\n", "\n").splitlines():
            if match := SHELL.match(line.strip()):
                found.append((match[1], shlex.split(match[2], comments=True)))
    return found


ALL_COMMANDS = [(page.name, *command) for page in PAGES for command in commands(page)]


def commands_of(*names: str) -> list[list[str]]:
    """Return the words of the clipx commands of these names, each once, without those on the example recipe."""
    found = {tuple(words) for _, program, words in ALL_COMMANDS if program == "clipx" and words[0] in names}
    return [[*words] for words in sorted(found) if "my_recipes" not in words]


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a folder with the example modules of the pages, and with my_package.my_module, which commands name."""
    for page in PAGES:
        for name, text in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page.read_text(), re.DOTALL):
            (tmp_path / name).write_text(text)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "my_module.py").write_text(
        (tmp_path / "uniform.py").read_text().replace('"uniform"', '"mine"')
    )
    monkeypatch.chdir(tmp_path)
    with plugin_tables.restored():
        yield


@pytest.mark.usefixtures("own_modules")
def test_settings_of_train_and_check_commands_exist() -> None:
    for words in commands_of("train", "check"):
        given = [word for word in words[1:] if "=" in word and not word.startswith("hydra")]
        if "-m" in words:  # keep the first value of each swept setting
            given = [re.sub(r",.*", "", word) if "[" not in word else word for word in given]
        _, given = take_options(given, CheckOptions, "check")
        assert f"recipe={compose_run(given).recipe}" in given, words


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_the_commands_of_make_targets_have_valid_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [f"{name}=x" for name in ("FLICKR8K", "CC3M", "CC12M", "MSCOCO", "DATACOMP")]
    targets = sorted(target for target in TARGETS if target.startswith(("reproduce-", "tune-")))
    found: set[tuple[str, str]] = set()
    for target in targets:
        call = ["make", "--dry-run", "-C", str(ROOT), target, *folders]
        printed = subprocess.run(call, capture_output=True, text=True, check=True).stdout
        printed = printed.replace("\\\n", " ").replace("$recipe", "gap_mini")
        of_target = re.findall(r"/clipx (reproduce|tune) ([^|&;\n]*)", printed)
        assert of_target, target
        found.update(of_target)
    for command, text in found:
        words = shlex.split(text)
        take_options(words, tune.Options, "tune") if command == "tune" else make_plan(words)


def test_the_class_for_mteb_embeds_texts_and_images(trained_run: Path) -> None:
    """As its tasks call it, with batches of texts, of images, or of both."""
    (code, _) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "evaluation.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    model = names["Run"](str(trained_run))
    texts, images = ["a red circle", "a blue square"], [Image.new("RGB", (50, 60), name) for name in ("red", "blue")]
    of_texts = model.encode([{"text": texts}])
    of_images = model.encode([{"image": [image]} for image in images], task_metadata=0)
    torch.testing.assert_close(model.encode([{"text": texts, "image": images}]), of_texts + of_images)
    assert model.similarity(of_texts, of_images).shape == (2, 2)
    torch.testing.assert_close(model.similarity_pairwise(of_texts, of_texts), torch.ones(2))
    assert not torch.allclose(of_texts[0], of_texts[1])


def test_arguments_of_reproduce_commands_compose() -> None:
    """Of the runs of a recipe, the first; tests/recipes composes every arm."""
    for words in commands_of("reproduce"):
        assert composed(make_plan(words[1:]).overrides[:1]), words


@pytest.mark.usefixtures("own_modules")
def test_settings_of_eval_commands_exist() -> None:
    for words in commands_of("eval"):
        config, runs = compose_evals(words[1:])
        assert runs or config.model, words


def test_lists_toy_problems_and_benchmarks_of_commands_exist() -> None:
    for command, table in {"ls": ls.LISTS, "theory": THEORY, "bench": BENCHMARKS}.items():
        for words in commands_of(command):
            named = {word for word in words[1:] if "=" not in word}
            assert named <= set(table), words
            assert named or command != "bench" or compose_run([w for w in words[1:] if w.startswith("recipe=")])


def test_commands_and_make_targets_exist() -> None:
    assert {words[0] for _, program, words in ALL_COMMANDS if program == "clipx"} <= set(COMMANDS)
    assert {words[0] for _, program, words in ALL_COMMANDS if program == "make"} <= TARGETS
    assert len(ALL_COMMANDS) > 80


def test_files_that_a_page_or_recipe_names_exist() -> None:
    pages = [*PAGES, *(ROOT / "recipes").glob("*.yaml")]
    named = {(page.name, path) for page in pages for path in PATHS.findall(page.read_text())}
    assert [(page, path) for page, path in sorted(named) if not (ROOT / path).exists()] == []
    assert len(named) > 100


def test_links_between_pages_resolve() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())]
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize(
    ("page", "name", "overrides", "terms"),
    [
        ("settings", "mine", ["arm=clip_reg", "data.root=FOLDER", "train.processes=8"], {"clip", "positive"}),
        ("first_experiment", "first", ["arm=uniform", "plugins=[uniform]"], {"clip", "uniform"}),
    ],
)
def test_the_example_recipe_composes(
    page: str, name: str, overrides: list[str], terms: set[str], own_recipes: Path
) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    (recipe,) = re.findall(rf"```\n# my_recipes/{name}.yaml.*?\n(.*?)```", text, re.DOTALL)
    (own_recipes / f"{name}.yaml").write_text(recipe)
    assert set(compose_run([f"recipe={name}", *overrides]).objective) == terms
    assert len(make_plan([f"recipe={name}", "data.root=FOLDER"]).overrides) == 6


def test_modules_to_use_instead_of_those_of_0_1_exist() -> None:
    table = (ROOT / "docs" / "moving_from_0.1.md").read_text().partition("\n### clipx\n")[2]
    cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`((?:clipx|evaluation|cli)\.[a-z_0-9.]+)[`(]", cell)}
    assert len(named) > 50
    assert [name for name in sorted(named) if not (ROOT / f"{name.replace('.', '/')}.py").exists()] == []


def test_commands_of_the_data_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("FOLDER", "CC3M/train"):
        write_shards(tmp_path / folder, samples=8)
    monkeypatch.setattr("evaluation.datasets.named.pull", lambda name, root: None)
    found = [words for page, _, words in ALL_COMMANDS if page == "data.md" and words[0] == "data"]
    for words in found:
        data(words[1:])
        assert capsys.readouterr().out, words
    assert len(found) >= 3


def test_the_python_example_of_the_reports_page_runs(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _ = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "reports.md").read_text(), re.DOTALL)
    (tmp_path / "image.jpg").write_bytes(jpeg("red"))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    exec(code.replace("runs/demo/s0", str(trained_run)), namespace)
    assert namespace["similarity"].shape == (1, 2)
    assert torch.allclose(namespace["text"].norm(dim=1), torch.ones(2))
