"""The command line with plug-ins and single terms: which names are known, how runs are named, recipes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.eval import many
from cli.settings.compose import compose_eval, compose_run
from cli.settings.recipes import recipes
from clipx.config.evaluation import EvalConfig
from clipx.errors import UserError
from evaluation.runs import results
from tests.helpers import fakes, plugin_tables
from tests.helpers.commands import clipx_here
from tests.helpers.folder import settings
from tests.helpers.own_package import NAME, write_package
from tests.helpers.runs import untrained

# several tests import the module that registers the tower
pytestmark = pytest.mark.filterwarnings("ignore:Overwriting okapi_vit_48 in registry")


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the package on Python's search path; afterwards restore the tables that plug-ins change."""
    monkeypatch.syspath_prepend(str(write_package(tmp_path / "package")))
    with plugin_tables.restored():
        yield


@pytest.mark.parametrize(
    ("overrides", "name", "terms"),
    [
        (["objective=counted"], "demo-counted", {"counted": {}}),
        (["objective=counted", "objective.counted.x=2"], "demo-counted-objective.counted.x_2", {"counted": {"x": 2}}),
        (["~objective.clip", "objective.counted.x=2"], "demo-counted-objective.counted.x_2", {"counted": {"x": 2}}),
        (["objective=clip_reg", "~objective.clip"], "demo-positive", {"positive": {"weight": 0.1}}),
        (["objective=positive"], "demo-positive", {"positive": {}}),
        (["objective=clip"], "demo-clip", {"clip": {}}),
    ],
)
def test_a_term_is_an_objective_and_names_the_run(overrides: list[str], name: str, terms: dict[str, object]) -> None:
    config = compose_run(["recipe=demo", f"plugins=[{NAME}]", *overrides])
    assert (config.name, config.objective, config.plugins) == (name, terms, [NAME])


def test_recipes_and_sources_of_a_plugin_are_found_by_name_and_a_recipe_alone_loads_none(own_recipes: Path) -> None:
    (own_recipes / "mine.yaml").write_text(f"defaults: [demo]\nplugins: [{NAME}]\n")
    with pytest.raises(UserError, match=rf"add plugins=\[{NAME}\] to the command"):
        compose_run(["recipe=mine"])
    config = compose_run([f"plugins={NAME}", "recipe=okapi", "arm=counted"])  # one name needs no brackets
    assert (config.data.name, config.data.source, config.name) == ("folders", "folders", "okapi-counted")
    assert config.objective == {"counted": {}} and config.plugins == [NAME]
    assert "okapi" in recipes() and "base" not in recipes()
    assert compose_eval([f"plugins={NAME}", "model=open_clip:RN50/openai"]).plugins == [NAME]


def test_a_process_of_clipx_eval_loads_the_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "append_output_to", lambda file: None)
    config = settings(tmp_path)
    config.model.image.name = "small:conv"  # built ten times as fast as a tower of open_clip
    run = untrained(config)
    spec = fakes.captioned(tmp_path / "shots")
    chosen = EvalConfig(checkpoint=str(run), datasets=[spec], tasks=["first_places"], plugins=[NAME], workers=0)
    assert many._in_worker(chosen) is None
    assert {row.task for row in results.read(run / "results.jsonl")} == {"first_places"}


def test_ls_lists_what_plugins_add(tmp_path: Path) -> None:
    for table, name in (("terms", "counted"), ("tasks", "first_places"), ("towers", "flat:NAME"), ("recipes", "okapi")):
        assert name in clipx_here("ls", table, f"plugins=[{NAME}]", cwd=tmp_path).stdout
    assert "whole" in clipx_here("ls", "settings", "mixing.kind", cwd=tmp_path).stdout
