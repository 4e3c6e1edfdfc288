"""Fixtures for all tests, which `tests/conftest.py` loads.

Made once in a test run, shared by its workers, and only read: `cache`, `shards`, `scenes`, `trained_run`.
A test that changes a run takes `copied_run`; a test of a cache takes `empty_cache`.
"""

import json
import logging
import os
import pickle
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache as cached
from importlib.metadata import packages_distributions
from pathlib import Path

import hydra
import open_clip
import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from cli.settings.compose import _stored
from clipx.config.schema import RunConfig, ScenesConfig
from clipx.data.scenes import folder as scenes_folder
from clipx.training.cost import StepCost, count_step
from clipx.utils.files import content_hash
from clipx.utils.trust import PERMITTED
from evaluation.embedding import features
from evaluation.report import figures
from tests.helpers.folder import write_shards
from tests.helpers.gloo import Gloo, pool
from tests.helpers.shared import SCENES, copy_of, folder_of_test_run, once, train


@pytest.fixture(autouse=True)
def no_log_handlers() -> Iterator[None]:
    """Remove the handlers that Hydra adds to the root logger: they write to the output of the test, which is closed."""
    yield
    for handler in list(logging.root.handlers):
        if type(handler) in (logging.StreamHandler, logging.FileHandler):
            logging.root.removeHandler(handler)
    logging.root.setLevel(logging.WARNING)


@pytest.fixture(autouse=True, scope="session")
def one_vocabulary() -> Iterator[None]:
    """Build open_clip's tokenizer once for all models, and list the installed packages once.

    To read the vocabulary takes a fifth of the time of a run; to list the packages, half a second.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_clip.factory, "SimpleTokenizer", cached(open_clip.factory.SimpleTokenizer))
        patch.setattr("clipx.utils.trust.packages_distributions", cached(packages_distributions))
        yield


@pytest.fixture(autouse=True, scope="session")
def one_count(shared: Path) -> Iterator[None]:
    """Count the memory of a step once for all runs whose steps are the same, whatever their data, length and names."""

    def count(config: RunConfig, processes: int = 1, on_gpu: bool = False) -> StepCost:
        train = replace(config.train, epochs=None, samples=None, save_every=1)
        rate, tau = replace(config.optimizer, lr=1.0), replace(config.temperature, tau=1.0)
        data = replace(config.data, root="") if config.data.features else None  # whose towers are not in the model
        key = repr((config.model, config.objective, tau, rate, train, data, processes, on_gpu))

        def write(folder: Path) -> None:
            (folder / "cost.json").write_text(json.dumps(asdict(count_step(config, processes, on_gpu))))

        folder = once(shared / "counts" / content_hash(key), write)
        return StepCost(**json.loads((folder / "cost.json").read_text()))

    with pytest.MonkeyPatch.context() as patch:
        for module in ("cost", "forecast"):
            patch.setattr(f"clipx.training.{module}.count_step", count)
        yield


@pytest.fixture(autouse=True, scope="session")
def one_composition(shared: Path) -> Iterator[None]:
    """Let Hydra compose the same presets, recipes and choices once, in 0.2 s; `clipx train` uses hydra.main instead."""
    compose, composed = hydra.compose, dict[str, DictConfig]()

    def once_composed(name: str, overrides: list[str]) -> DictConfig:
        recipes = {file: stored.node for file, stored in ConfigStore.instance().repo["recipe"].items()}
        key = content_hash(repr((name, overrides, _stored[""], recipes)))
        if key not in composed:
            folder = once(shared / "compositions" / key, lambda made: save(compose(name, overrides), made / "c.pickle"))
            composed[key] = pickle.loads((folder / "c.pickle").read_bytes())
        return composed[key]

    def save(config: DictConfig, file: Path) -> None:
        file.write_bytes(pickle.dumps(config))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hydra.compose", once_composed)
        yield


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait in this process until files are on the disk, as they must be before a power cut: 20 times a run."""
    monkeypatch.setattr("clipx.utils.files._sync", lambda path: None)


SAVED = figures._saved


@pytest.fixture(autouse=True, scope="session")
def no_pdf() -> Iterator[None]:
    """Leave out the PDF of each figure, which takes half the time of a report, unless a test asks for `pdf`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            figures,
            "_saved",
            lambda print_file, *more: b"%PDF" if print_file.__name__ == "print_pdf" else SAVED(print_file, *more),
        )
        yield


@pytest.fixture
def pdf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the PDF of each figure, which `no_pdf` leaves out."""
    monkeypatch.setattr(figures, "_saved", SAVED)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return the folder of what is made once in a test run."""
    return folder_of_test_run(tmp_path_factory, worker_id)


@pytest.fixture(autouse=True)
def cache(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests share rendered scenes, indexes and embeddings. Their keys contain the content, or path and time.

    Scenes have 48 images instead of 2,000 for the linear probe of each class set, which take ten seconds to render.
    """
    features._inputs.clear()
    monkeypatch.setattr(scenes_folder, "PROBE_IMAGES", 48)
    monkeypatch.setenv("CLIPX_CACHE", str(shared / "cache"))
    monkeypatch.setenv(PERMITTED, "{}")  # what the command line of another test has permitted


@pytest.fixture
def empty_cache(cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a cache folder of its own, which does not exist yet, and return it."""
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def shards(shared: Path) -> Path:
    """Return a folder whose `train` has a shard of 16 samples: `data.root` of a run."""
    return once(shared / "shards", lambda folder: write_shards(folder / "train", 16))


@pytest.fixture
def scenes(shared: Path, cache: None) -> ScenesConfig:
    """Return the settings of the smallest rendered data set, which lies in the shared cache."""
    scenes_folder.ensure_rendered(SCENES, None)
    return replace(SCENES)


@pytest.fixture(scope="session")
def trained_run(shared: Path) -> Path:
    """Return a run of `tests.helpers.runs.prepared`: 16 samples, two epochs of two steps."""
    return once(shared / "trained", train) / "runs/test/s0"


@pytest.fixture
def copied_run(trained_run: Path, tmp_path: Path) -> tuple[RunConfig, Path]:
    """Return settings and folder of a copy of `trained_run` in tmp_path/runs, for a test that changes it."""
    return copy_of(trained_run, tmp_path)


@pytest.fixture(scope="session")
def light_tower(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let open_clip know `light-48`: CLIP's vocabulary with a width of 16, so that a checkpoint has 4 MB, not 27."""
    image = {"image_size": 48, "layers": 1, "width": 64, "head_width": 64, "patch_size": 16}
    text = {"context_length": 32, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
    file = tmp_path_factory.mktemp("towers") / "light-48.json"
    file.write_text(json.dumps({"embed_dim": 16, "vision_cfg": image, "text_cfg": text}))
    open_clip.add_model_config(file)


@pytest.fixture
def own_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for recipes of a test, which commands then find by name, as with --config-dir."""
    monkeypatch.setattr("sys.argv", ["clipx", "--config-dir", str(tmp_path)])
    return tmp_path


@pytest.fixture
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the Hugging Face hub unreachable and its cache empty."""
    monkeypatch.setattr("clipx.utils.hub.reachable", lambda: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder named by CLIPX_DATA, or skip the test. Mark tests that use this fixture with real_data."""
    folder = os.environ.get("CLIPX_DATA")
    if not folder:
        pytest.skip("CLIPX_DATA is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def gloo() -> Iterator[Gloo]:
    """Yield a pool of worker processes for tests on several ranks. All tests of a session share it."""
    with pool() as workers:
        yield workers
