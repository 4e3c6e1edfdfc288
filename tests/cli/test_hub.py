"""The hub's real client pushes a model to a local test server; a new process loads the model from this server."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub.utils
import pytest
import torch

from clipx.config.schema import RunConfig
from clipx.models import clip
from clipx.run import checkpoint
from clipx.run.folder import RESULTS, RunFolder
from clipx.run.saving import TrainState
from evaluation.runs import results
from evaluation.types import Result
from tests.helpers.commands import clipx_here
from tests.helpers.folder import settings, write_shards
from tests.helpers.hub_server import Hub, running_hub
from tests.helpers.runs import untrained

pytestmark = pytest.mark.usefixtures("light_tower")
LIGHT = "open_clip:light-48"
PUSH = ("hub=me/demo", "licence=apache-2.0")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Run a test hub for this process and its children, with an empty cache and a write token of the user `me`."""
    if reset := getattr(huggingface_hub.utils, "reset_sessions", None):
        reset()  # before huggingface_hub 1.0, a session of an offline test stays offline
    with running_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_TOKEN", "hf_writer")
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        constants = "huggingface_hub.constants"
        monkeypatch.setattr(f"{constants}.ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        for module in (constants, "huggingface_hub.file_download"):  # before 1.0, the second has a copy
            monkeypatch.setattr(f"{module}.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr(f"{constants}.HF_HUB_CACHE", str(tmp_path / "hf/hub"))
        monkeypatch.setattr(f"{constants}.HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", server.url)
        monkeypatch.setattr("cli.export.command.reachable", lambda: True)
        monkeypatch.setattr("clipx.utils.hub.reachable", lambda: True)
        yield server


def run_with_results(root: Path, tower: str = LIGHT, change: Callable[[RunConfig], None] | None = None) -> Path:
    """Write an untrained run and three results: of its weights, of other weights, and of its weights with limit=10."""
    config = settings(root)
    config.model.image.name = config.model.text.name = tower
    if change:
        change(config)
    torch.manual_seed(1)
    run = untrained(config)
    digest = checkpoint.verify(checkpoint.resolve(run))["sha256"][checkpoint.WEIGHTS]
    rows = [row("mine", 0.25, digest[:16]), row("of another step", 0.5, "0" * 16)]
    results.write(run / RESULTS, [*rows, row("quick", 0.75, digest[:16], limit="10")])
    return run


def row(dataset: str, value: float, checkpoint_hash: str, **more: str) -> Result:
    hashes = {"checkpoint": checkpoint_hash, **more}
    return Result("zeroshot", dataset, "test", "top1", value, 100, 0.2, 0.3, 0.1, True, hashes=hashes)


FETCH = """
import sys, torch, open_clip
{imports}
from pathlib import Path
from evaluation.embedding.encoder import from_open_clip
from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig
from clipx.models import clip
torch.manual_seed(0)
pixels, tokens = torch.randn(2, 3, 48, 48), torch.randint(1, 999, (2, 32))
name = "hf-hub:me/demo"
theirs, preprocess = open_clip.create_model_from_pretrained(name)
theirs.eval()
with torch.no_grad():
    found = [(theirs.encode_image(pixels, normalize=True), theirs.encode_text(tokens, normalize=True))]
evaluated = from_open_clip(name, torch.device("cpu"))
found.append((evaluated.image(pixels), evaluated.text(tokens)))
sides = [side(name={tower!r}, pretrained=name) for side in (ImageTowerConfig, TextTowerConfig)]
model = clip.build_model(RunConfig(model=ModelConfig(image=sides[0], text=sides[1])))
with torch.no_grad():
    found.append((model.eval().encode_image(pixels), model.encode_text(tokens)))
words = open_clip.get_tokenizer(name)(["a red circle"])
assert torch.equal(words, evaluated.tokenize(["a red circle"])) and words.shape == (1, 32)
torch.save((found, repr(preprocess)), sys.argv[1])
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("tower", "imports"),
    [("open_clip:mini-48", "import clipx.models.towers.small_cnn"), ("open_clip:mini-vit-48", "")],
)
def test_a_pushed_model_embeds_the_same_in_a_new_process(tmp_path: Path, hub: Hub, tower: str, imports: str) -> None:
    run = run_with_results(tmp_path, tower)
    pushed = subprocess.run(
        [sys.executable, "-m", "cli.main", "export", str(run), *PUSH], capture_output=True, text=True, cwd=Path.cwd()
    )
    assert pushed.returncode == 0, pushed.stderr
    assert f"{hub.url}/me/demo" in pushed.stdout and pushed.stderr == ""
    assert sorted(hub.repositories["me/demo"]) == ["README.md", "open_clip_config.json", "open_clip_model.safetensors"]
    assert sum(request.startswith("PUT /lfs/") for request in hub.requests) == 1

    script = FETCH.format(imports=imports, tower=tower)
    fetch = [sys.executable, "-c", script, str(tmp_path / "found.pt")]
    fetched = subprocess.run(fetch, capture_output=True, text=True, env={**os.environ, "HF_HOME": str(tmp_path / "b")})
    assert fetched.returncode == 0, fetched.stderr
    assert (tmp_path / "b/hub/models--me--demo").is_dir(), "the new process read the model from another cache"
    model = clip.build_model(RunFolder(run).load_config(), pretrained=False)
    checkpoint.load_weights(model.eval(), checkpoint.resolve(run))
    torch.manual_seed(0)
    pixels, tokens = torch.randn(2, 3, 48, 48), torch.randint(1, 999, (2, 32))
    found, preprocess = torch.load(tmp_path / "found.pt", weights_only=True)
    with torch.no_grad():
        for image, text in found:
            torch.testing.assert_close(image, model.encode_image(pixels))
            torch.testing.assert_close(text, model.encode_text(tokens))
    assert "48" in preprocess and "bicubic" in preprocess


def push(run: Path, *more: str) -> str:
    done = clipx_here("export", str(run), *(more or PUSH), cwd=run.parents[2], code=None)
    return done.stdout if done.returncode == 0 else f"{done.returncode} {done.stderr.removeprefix('clipx: ')}"


def test_the_card_describes_the_run_and_its_results_and_contains_no_path(tmp_path: Path, hub: Hub) -> None:
    def change(config: RunConfig) -> None:
        config.objective = {"clip": {}, "positive": {"weight": 0.1}}
        config.arm = "mine"
        config.temperature.tau = 0.05

    push(run_with_results(tmp_path, "open_clip:mini-48", change))
    card = hub.repositories["me/demo"]["README.md"].decode()
    for part in (
        *("license: apache-2.0", "library_name: open_clip", "clip + 0.1 positive", "from τ = 0.05", "arm mine"),
        *("| Data | test (source shards", "| Batch size | 8 |", "| Samples seen | 24 |", "| Steps | 3 |"),
        "| zeroshot | mine | test | top1 | 25.0% | 20.0 .. 30.0 | 10.0 | 100 |",
        "open_clip.create_model_from_pretrained('hf-hub:me/demo')",
        "import clipx.models.towers.small_cnn",
    ):
        assert part in card, part
    assert "of another step" not in card and "quick" not in card
    for content in hub.repositories["me/demo"].values():
        assert str(tmp_path).encode() not in content


def test_the_bias_is_written_to_and_the_preprocessing_read_from_the_hubs_configuration(
    tmp_path: Path, hub: Hub
) -> None:
    """On the hub, open_clip_config.json has the preprocessing; FILE.json of `clipx export out=FILE` does not."""
    push(run_with_results(tmp_path, LIGHT, lambda config: setattr(config.temperature, "bias", -7.5)))
    files = hub.repositories["me/demo"]
    config = json.loads(files["open_clip_config.json"])
    assert config["model_cfg"]["init_logit_bias"] == -7.5
    config["preprocess_cfg"] |= {"mean": [0.5, 0.25, 0.125], "resize_mode": "squash"}
    config["model_cfg"]["vision_cfg"]["image_size"] = 96
    files["open_clip_config.json"] = json.dumps(config).encode()
    del files["open_clip_model.safetensors"]
    for load in (False, True):  # False: build the model without loading weights, as evaluation and resume do
        run_config = settings(tmp_path)
        for side in (run_config.model.image, run_config.model.text):
            side.name, side.pretrained = LIGHT, "hf-hub:me/demo"
        if load:
            with pytest.raises(ValueError, match=r"model\.image\.pretrained=hf-hub:me/demo .* has no open_clip_model"):
                clip.build_model(run_config)
        else:
            inputs = clip.build_model(run_config, pretrained=False).inputs
            assert (inputs.mean, inputs.resize_mode, inputs.image_size) == ((0.5, 0.25, 0.125), "squash", 96)


def test_a_second_push_replaces_the_files(tmp_path: Path, hub: Hub) -> None:
    run = run_with_results(tmp_path)
    push(run)
    before = dict(hub.repositories["me/demo"])
    model = clip.build_model(RunFolder(run).load_config(), pretrained=False)
    TrainState(model, torch.optim.SGD(model.parameters()), "data", step=9).save(run)
    push(run, "hub=me/demo", "licence=MIT")
    after = hub.repositories["me/demo"]
    assert b"| Steps | 9 |" in after["README.md"] and b"license: mit" in after["README.md"]
    assert before["open_clip_model.safetensors"] != after["open_clip_model.safetensors"]


def test_a_private_repository_needs_the_token(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    push(run_with_results(tmp_path), *PUSH, "private=true")
    assert hub.private == {"me/demo": True}
    monkeypatch.delenv("HF_TOKEN")
    assert "no such repository; if it is private, run `hf auth login`" in evaluated(tmp_path, "hf-hub:me/demo")


def evaluated(root: Path, model: str) -> str:
    write_shards(root / "val", samples=4)
    done = clipx_here("eval", f"model={model}", f"datasets=[captions:{root}/val]", "workers=0", cwd=root, code=None)
    assert done.returncode in (0, 2) and done.stderr.count("\n") <= 1, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def run(light_tower: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that no test changes."""
    return run_with_results(tmp_path_factory.mktemp("hub"))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("hub=me/demo",), "licence= is missing; give one of the hub's, such as licence=apache-2.0"),
        (("hub=me/demo", "licence=my own"), "licence=my own is no identifier"),
        (
            ("hub=me/demo", "licence=mine"),
            'licence=mine: the hub refuses the repository\'s name or the licence ("license" must be one of',
        ),
        (("hub=demo", "licence=mit"), "hub=demo must be USER/NAME"),
        (("hub=you/demo", "licence=mit"), "hub=you/demo: the token may not write there; give your user name"),
        (("out=x.pt", "licence=mit"), "licence= and private= need hub=USER/NAME"),
    ],
)
def test_wrong_push_arguments_end_in_one_line(run: Path, hub: Hub, arguments: tuple[str, ...], part: str) -> None:
    found = push(run, *arguments)
    assert found.startswith("2 ") and part in found and found.count("\n") == 1, found
    assert not hub.repositories


@pytest.mark.parametrize(
    ("token", "broken", "start"),
    [
        ("", False, "2 hub=me/demo needs a token that may write"),
        ("hf_old", False, "2 hub=me/demo: the hub does not accept the token"),
        ("hf_writer", True, "1 hub=me/demo: the upload failed ("),
    ],
)
def test_a_push_that_the_hub_refuses_ends_in_one_line(
    run: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str, broken: bool, start: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    hub.broken = broken
    found = push(run)
    assert found.startswith(start) and found.count("\n") == 1, found
    assert broken or not hub.repositories


@pytest.mark.parametrize(
    ("files", "part"),
    [
        (None, "hf-hub:me/x: no such repository"),
        ({}, "the repository has no open_clip_config.json; `clipx export RUN hub=me/x` writes it"),
        ({"open_clip_config.json": b"{"}, "has no usable open_clip_config.json"),
        ({"open_clip_config.json": b'{"model_cfg": {}}'}, "model_cfg needs embed_dim, vision_cfg and text_cfg"),
    ],
)
def test_a_repository_without_a_usable_model_ends_in_one_line(
    tmp_path: Path, hub: Hub, files: dict[str, bytes] | None, part: str
) -> None:
    if files is not None:
        hub.repositories["me/x"] = files
    assert part in evaluated(tmp_path, "hf-hub:me/x")


def test_weights_that_do_not_fit_end_in_one_line(tmp_path: Path, hub: Hub) -> None:
    push(run_with_results(tmp_path))
    files = hub.repositories["me/demo"]
    hub.repositories["me/y"] = dict(files)
    del hub.repositories["me/y"]["open_clip_model.safetensors"]
    hub.repositories["me/z"] = {**files, "open_clip_model.safetensors": files["open_clip_model.safetensors"][:2000]}
    assert "me/y is no model in open_clip's layout: the repository has no" in evaluated(tmp_path, "hf-hub:me/y")
    assert "hf-hub:me/z cannot be loaded by open_clip" in evaluated(tmp_path, "hf-hub:me/z")
    assert "model=hf-hub:demo must be hf-hub:USER/NAME" in evaluated(tmp_path, "hf-hub:demo")

    config = settings(tmp_path)
    config.model.image.name, config.model.image.pretrained = "open_clip:mini-vit-48", "hf-hub:me/demo"
    with pytest.raises(ValueError, match=r"has other towers than open_clip:mini-vit-48 .*; it fits open_clip:"):
        clip.build_model(config)
    config.model.image.name, config.model.embed_dim = "timm:test_resnet", 64
    with pytest.raises(ValueError, match=r"pretrained=hf-hub:me/demo needs a tower named open_clip:NAME"):
        clip.build_model(config)
