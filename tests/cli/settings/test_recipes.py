"""An arm is a named list of overrides; the user's overrides replace those of the arm, and the arm names the run."""

from pathlib import Path

import pytest

from cli import ls
from cli.settings.compose import compose_run
from cli.settings.recipes import expand_arm, load_recipe, recipe, recipes
from clipx.errors import UserError

SMALL = "model: {image: {name: 'small:conv'}, text: {name: 'small:clip_bag'}}\ntrain: {samples: 8, batch_size: 8}\n"
SMALL += "schedule: {warmup_steps: 0}\n"


@pytest.mark.parametrize("chosen", ["arm=hot", "++arm=hot"])
def test_an_arm_inserts_its_overrides_but_those_that_the_user_gives(chosen: str) -> None:
    arms = {"hot": ["temperature.kind=fixed", "temperature.tau=0.1"], "plain": []}
    given, inserted = expand_arm(["recipe=r", chosen, "temperature.tau=0.3"], arms)
    assert given == ["recipe=r", chosen, "temperature.kind=fixed", "temperature.tau=0.3"]
    assert inserted == ["temperature.kind=fixed"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arms: [a, b]", r"arms=\['a', 'b'\] must be settings: arms.NAME=VALUE; allowed: lines of the form NAME"),
        ("arms: {a: [clip]}", "arms=.* allowed: lines of the form NAME"),
        ("evaluations:", "evaluations=null must be a list"),
        ("looks: 3", r"looks=3 must be a list: looks=\[VALUE\]"),
        ("scale: {depth: [1, 2, 3, 4]}", "scale=.* allowed: lines of the form AXIS: .*; axes: samples, data, width"),
        ("scale: {samples: [1, 2]}", r"scale=.* with 3 or more values"),
        ("plugins: 3", "plugins=3 must be a list of modules"),
        ("defaults: demo", r"defaults=demo must be a list of recipes and choices, such as \[NAME, override /data"),
        ("defaults: [{/recipe: demo}]", "must be a list of recipes and choices"),
        ("- a", "holds no settings"),
        ("a: [", "is not valid YAML"),
        ("~: a", "is not valid YAML"),
        ("a: !!set {b}", "is not valid YAML"),
        ("train: {samples: abc}", "train.samples=abc must be a whole number"),
        ("optimizer: {lr: null}", "optimizer.lr=null must be a number"),
        ("data: {evaluation: x}", r"data.evaluation=x must be a list: data.evaluation=\[VALUE\]"),
        ("objective: clip", "objective=clip must be settings: objective.NAME=VALUE"),
        ("train: 3", "train=3 must be settings"),
    ],
)
def test_a_malformed_recipe_is_named_also_by_one_that_starts_from_it(
    own_recipes: Path, text: str, message: str
) -> None:
    (own_recipes / "wrong.yaml").write_text(text)
    (own_recipes / "mine.yaml").write_text("defaults: [wrong]\n")
    with pytest.raises(UserError, match=rf"^recipe {own_recipes}/wrong.yaml.* {message}"):
        compose_run(["recipe=mine"])


def test_numbers_and_dates_of_a_recipe_are_read_as_hydra_reads_them(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("name: 2024-01-01\noptimizer: {lr: 1e-3, eps: 5E-8}\nseed: 3\n")
    settings = load_recipe(tmp_path / "r.yaml").settings
    assert settings == {"name": "2024-01-01", "optimizer": {"lr": 0.001, "eps": 5e-8}, "seed": 3}


def test_recipes_that_start_from_themselves_or_from_an_unknown_one_are_refused(own_recipes: Path) -> None:
    for name, base in (("one", "two"), ("two", "one"), ("self", "self"), ("lost", "dmo")):
        (own_recipes / f"{name}.yaml").write_text(f"defaults: [{base}]\n")
    for name, message in (
        ("one", "recipe=one: its defaults lead back to one: one -> two -> one$"),
        ("self", "recipe=self: its defaults lead back to self: self -> self$"),
        ("lost", "recipe=lost: defaults=dmo is not known; did you mean 'demo'"),
    ):
        with pytest.raises(UserError, match=message):
            compose_run([f"recipe={name}"])


def test_a_recipe_chooses_a_single_term_that_is_no_preset(own_recipes: Path) -> None:
    (own_recipes / "first.yaml").write_text(f"defaults: [override /objective: negative]\n{SMALL}")
    (own_recipes / "second.yaml").write_text("defaults: [first]\n")
    for name in ("first", "second"):
        assert compose_run([f"recipe={name}"]).objective == {"negative": {}}
        assert compose_run([f"recipe={name}", "objective=clip"]).objective == {"clip": {}}


def test_a_file_that_cannot_be_read_does_not_block_the_other_recipes(own_recipes: Path) -> None:
    (own_recipes / "mine.yaml").write_text(SMALL)
    for link in (".#mine.yaml", "gone.yaml"):  # the first is the lock that Emacs makes while it edits mine.yaml
        (own_recipes / link).symlink_to("user@host.1234")
    (own_recipes / "folder.yaml").mkdir()
    assert compose_run(["recipe=mine"]).train.batch_size == 8
    assert ".#mine" not in recipes()
    for name, reason in (("gone", "No such file or directory"), ("folder", "Is a directory")):
        with pytest.raises(UserError, match=rf"recipe .*/{name}.yaml cannot be read: {reason}"):
            compose_run([f"recipe={name}"])
    listed = ls._recipes()
    assert "cannot be read" in listed["gone"] and "mine" in listed


def test_a_recipe_that_starts_from_another_has_its_settings_but_not_its_arms(own_recipes: Path) -> None:
    (own_recipes / "first.yaml").write_text(
        "defaults: [override /data: flickr8k]\nmodel: {image: {name: 'small:conv'}, text: {name: 'small:clip_bag'}}\n"
        "train: {epochs: 3, batch_size: 8}\nobjective: {clip: {average: false}}\narms: {one: []}\n"
    )
    (own_recipes / "second.yaml").write_text("defaults: [first, override /data: mscoco]\ntrain: {batch_size: 4}\n")
    for overrides in ([], ["objective=clip"]):
        config = compose_run(["recipe=second", *overrides])
        assert (config.train.epochs, config.train.batch_size, config.data.name) == (3, 4, "mscoco")
        assert config.objective == {"clip": {"average": False}}
    assert recipe("second").arms == {}


def test_of_two_recipes_that_one_starts_from_the_later_counts(own_recipes: Path) -> None:
    for name, average in (("first", "true"), ("second", "false")):
        (own_recipes / f"{name}.yaml").write_text(f"{SMALL}objective: {{clip: {{average: {average}}}}}\n")
    (own_recipes / "both.yaml").write_text("defaults: [first, second]\n")
    for overrides in ([], ["objective=clip"]):
        assert compose_run(["recipe=both", *overrides]).objective == {"clip": {"average": False}}
