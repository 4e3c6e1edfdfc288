"""The rendered folder has the layout that the evaluation expects; an incomplete folder never gets its final name."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import webdataset

from clipx.config.schema import ScenesConfig
from clipx.data.scenes import folder as scenes_folder
from clipx.data.scenes.content import WORLDS
from clipx.data.scenes.samples import training_sample
from clipx.errors import Fault, UserError
from tests.helpers.scenes import named

pytestmark = pytest.mark.usefixtures("empty_cache")

CONFIG = ScenesConfig(num_train=50, omit=0.3, test_images=24, test_pairs=2)
# class set -> attribute, number of classes
LABELLED = {"scenes_shape": ("shape", 8), "scenes_colour": ("colour", 8), "scenes_count": ("count", 6)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Render a data set once, for the tests that only read."""
    root = tmp_path_factory.mktemp("scenes") / "data"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("CLIPX_CACHE", str(root.parent / "cache"))
        monkeypatch.setattr(scenes_folder, "SHARD", 30)
        monkeypatch.setattr(scenes_folder, "PROBE_IMAGES", 48)
        root.mkdir()  # an empty folder is allowed
        scenes_folder.render_folder(root, CONFIG)
    return root


def samples(*shards: Path) -> list[dict[str, bytes]]:
    return list(webdataset.WebDataset([str(s) for s in shards], shardshuffle=False))


def test_webdataset_reads_the_training_pairs_in_order(folder: Path) -> None:
    shards = sorted((folder / "train").glob("*.tar"))
    assert [s.name for s in shards] == ["00000.tar", "00001.tar"]
    found = samples(*shards)
    assert len(found) == CONFIG.num_train
    for index, sample in enumerate(found):
        assert {k: sample[k] for k in ("png", "txt", "json")} == training_sample(CONFIG, index).members()
        truth = json.loads(sample["json"])
        assert sample["txt"].decode() == truth["captions"][0]
        assert {"groups", "objects", "popularity", "faults", "repeats"} <= truth.keys()


@pytest.mark.parametrize("name", LABELLED)
def test_class_sets_have_balanced_labels_that_agree_with_the_ground_truth(folder: Path, name: str) -> None:
    attribute, classes = LABELLED[name]
    classnames = (folder / name / "classnames.txt").read_text().split("\n")[:-1]
    templates = (folder / name / "zeroshot_classification_templates.txt").read_text().splitlines()
    assert len(classnames) == classes
    assert attribute != "count" or classnames[:2] == ["one object", "two objects"]
    assert templates and all("{c}" in t for t in templates)
    for split, size in (("train", 48), ("test", 24)):
        assert (folder / name / split / "nshards.txt").read_text().strip() == "1"
        found = samples(folder / name / split / "0.tar")
        labels = [int(s["cls"]) for s in found]
        assert sorted(labels) == sorted(list(range(classes)) * (size // classes))
        for sample, label in zip(found, labels, strict=True):
            (group,) = json.loads(sample["json"])["groups"]
            expected = label + 1 if attribute == "count" else classnames[label]
            assert group[attribute] == expected


def test_no_class_or_retrieval_image_is_a_training_image_or_in_two_splits(folder: Path) -> None:
    shards = [s for s in folder.rglob("*.tar") if "scenes_pairs" not in s.parts]
    pictures = [sample["png"] for sample in samples(*shards)]
    assert len(shards) == 2 + 2 * len(LABELLED) + 1  # training, class sets, retrieval
    assert len(set(pictures)) == len(pictures)


def test_a_finished_folder_is_not_rendered_again_and_refused_with_the_difference_for_other_scenes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes_folder, "_plan", lambda config: pytest.fail("renders again"))
    assert scenes_folder.ensure_rendered(CONFIG, folder) == folder
    stored = json.loads((folder / "scenes.json").read_text())
    (tmp_path / "scenes.json").write_text(json.dumps(stored | {"seed": 1, "depth": 3}))  # a setting of a newer version
    with pytest.raises(UserError, match=r"data\.root=.* holds other scenes \(seed=1, not 0, depth=3, not None\)"):
        scenes_folder.ensure_rendered(CONFIG, tmp_path)


@pytest.mark.parametrize(("name", "content"), [("holiday.jpg", "x"), ("scenes.json", "{"), ("scenes.json", "[]")])
def test_a_folder_with_other_or_damaged_files_is_refused_and_unchanged(tmp_path: Path, name: str, content: str) -> None:
    root = tmp_path / "photographs"
    root.mkdir()
    (root / name).write_text(content)
    with pytest.raises(UserError, match=r"data\.root=.*photographs exists, but holds no finished scenes"):
        scenes_folder.ensure_rendered(CONFIG, root)
    assert [p.name for p in root.iterdir()] == [name]


@pytest.mark.parametrize("absolute", [False, True])
def test_the_current_folder_is_refused_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absolute: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"data\.root=.* is the current folder"):
        scenes_folder.ensure_rendered(CONFIG, tmp_path if absolute else Path())
    assert tmp_path.is_dir()


def test_each_config_has_its_own_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scenes_folder, "render_folder", lambda root, config: None)
    configs = (ScenesConfig(), ScenesConfig(seed=1), ScenesConfig(omit=0.1), ScenesConfig(omit=0.1))
    roots = [scenes_folder.ensure_rendered(config, None) for config in configs]
    assert len(set(roots)) == 3 and roots[2] == roots[3]
    assert {r.parent for r in roots} == {tmp_path / "cache" / "scenes"}


def test_a_failed_rendering_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "new" / "data"
    plan = scenes_folder._plan
    broken: dict[str, Any] = {"broken.tar": (0, map(int, "x"))}  # the last shard: the workers write the others first
    monkeypatch.setattr(scenes_folder, "_plan", lambda config: plan(config) | broken)
    with pytest.raises(ValueError, match="invalid literal"):
        scenes_folder.render_folder(root, CONFIG)
    assert list(root.parent.iterdir()) == []


def test_a_killed_process_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarfile.open", lambda *of, **named: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(Fault, match="killed"):
        scenes_folder.render_folder(tmp_path / "new" / "data", CONFIG)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_killed_rendering_leaves_only_hidden_files_which_the_next_rendering_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import time; from clipx.data.scenes import folder as w; from clipx.config.schema import ScenesConfig;"
        f"w._plan = lambda config: time.sleep(600); w.ensure_rendered(ScenesConfig(**{vars(CONFIG)}), None)"
    )
    home = tmp_path / "cache" / "scenes"
    process = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 60
    while not any(home.glob(".*/scenes_count/classnames.txt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(home.glob(".*.lock")), "processes on other machines must wait, not remove what is being written"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert all(leftover.name.startswith(".") for leftover in home.iterdir())
    root = scenes_folder.ensure_rendered(CONFIG, None)
    assert list(home.iterdir()) == [root]
    assert len(samples(*sorted((root / "train").glob("*.tar")))) == CONFIG.num_train


def test_one_world_has_the_evaluation_sets_of_both_worlds(tmp_path: Path) -> None:
    """Each world has its own shapes and colours, in its images and in its captions."""
    config = ScenesConfig(num_train=60, test_images=12, test_pairs=1, world="second", noise=0.3, popularity_skew=1.0)
    scenes_folder.render_folder(tmp_path / "data", config)
    for sets, world in (("scenes_*", "first"), ("new_*", "second"), ("train", "second")):
        found = samples(*(tmp_path / "data").glob(f"{sets}/**/*.tar"))
        truths = [json.loads(sample["json"]) for sample in found]
        captions = [named(caption) for truth in truths for caption in truth["captions"]]
        for number, attribute in ((1, "colour"), (2, "shape")):
            shown = {group[attribute] for truth in truths for group in truth["groups"]}
            said = {one for caption in captions for one in caption[number]}
            assert shown == said == set(getattr(WORLDS[world], f"{attribute}s"))
    for prefix, world in (("scenes", "first"), ("new", "second")):
        names = (tmp_path / "data" / f"{prefix}_shape" / "classnames.txt").read_text().split()
        assert names == list(WORLDS[world].shapes)
