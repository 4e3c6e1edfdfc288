"""Encoders of checkpoints and published models; interpolate= gives the rows of start and end at 0 and 1."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from safetensors.torch import load_file

from cli.eval import many, one
from clipx.config.evaluation import EvalConfig
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.towers import open_clip_towers
from clipx.run import checkpoint
from clipx.run.checkpoint import WEIGHTS, resolve
from clipx.run.folder import RunFolder
from evaluation.embedding.encoder import from_checkpoint, from_open_clip, interpolate
from evaluation.runs import results
from evaluation.types import Result
from tests.helpers import fakes
from tests.helpers.runs import prepared, trained, untrained

CPU = torch.device("cpu")
IMAGE = Image.effect_noise((60, 50), 80).convert("RGB")


@pytest.mark.parametrize("averaged", [False, True])
def test_a_checkpoint_embeds_as_its_model_does(averaged: bool, fine_tuned: tuple[Path, Path]) -> None:
    run, _ = fine_tuned
    encoder, found = from_checkpoint(run, CPU, averaged=averaged)
    assert found == run and encoder.name == f"start/s0 step 2{' ema' if averaged else ''}"
    model = clip.build_model(RunFolder(run).load_config(), pretrained=False).eval()
    checkpoint.load_weights(model, checkpoint.resolve(run), checkpoint.AVERAGED if averaged else WEIGHTS)
    pixels, tokens = encoder.preprocess(IMAGE)[None], encoder.tokenize(["a red picture", "two dogs"])
    with torch.no_grad():
        assert torch.allclose(encoder.image(pixels), model.encode_image(pixels), atol=1e-6)
        assert torch.allclose(encoder.text(tokens), model.encode_text(tokens), atol=1e-6)
    assert torch.allclose(encoder.text(tokens).norm(dim=-1), torch.ones(2), atol=1e-6)
    other, _ = from_checkpoint(run, CPU, averaged=not averaged)
    assert other.provenance["checkpoint"] != encoder.provenance["checkpoint"]
    assert not torch.allclose(other.image(pixels), encoder.image(pixels), atol=1e-6)


def test_an_open_clip_model_embeds_as_open_clip_does() -> None:
    encoder = from_open_clip("open_clip:mini-48/random", CPU)
    torch.manual_seed(0)
    model = open_clip.create_model("mini-48").eval()
    tokens = open_clip.get_tokenizer("mini-48")(["a photo of a dog"])
    transform = image_transform_v2(PreprocessCfg(size=48), is_train=False)
    with torch.no_grad():
        assert torch.allclose(encoder.text(encoder.tokenize(["a photo of a dog"])), model.encode_text(tokens, True))
        assert torch.allclose(encoder.preprocess(IMAGE), transform(IMAGE))
        image = model.encode_image(transform(IMAGE)[None], normalize=True)
        assert torch.allclose(encoder.image(encoder.preprocess(IMAGE)[None]), image, atol=1e-6)
    assert "random weights" in encoder.name
    assert encoder.provenance["checkpoint"] == from_open_clip("open_clip:mini-48/random", CPU).provenance["checkpoint"]


def test_the_error_for_missing_weights_names_both_remedies(no_hub: None) -> None:
    with pytest.raises(UserError, match=r"run `hf download laion/CLIP-ViT-B-32-laion2B-s34B-b79K`.*local file"):
        from_open_clip("open_clip:ViT-B-32/laion2b_s34b_b79k", CPU)


def pickled(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"w.pt cannot be read as weights"),
        (b"\x80\x04K\x01.", r"w.pt (cannot be read as weights|holds)"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", r"w.pt is a Git LFS pointer.*git lfs pull"),
        (pickled(torch.nn.Linear(2, 2)), r"w.pt holds Python objects, such as a whole module.*state_dict"),
        (pickled({"a": [1, 2]}), r"w.pt holds other values than tensors"),
        (pickled({"model.visual.w": torch.ones(1)}), r"w.pt: all names start with model"),
        (pickled({"_orig_mod.visual.w": torch.ones(1)}), r"w.pt: all names start with _orig_mod"),
        (pickled({"visual.w": torch.ones(1)}), r"w.pt does not hold weights of mini-48: .{,300}$"),
    ],
    ids=["empty", "pickle", "lfs", "module", "lists", "wrapped", "compiled", "other_names"],
)
def test_a_file_without_weights_is_refused(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, content: bytes, reason: str
) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(UserError, match=reason):
        from_open_clip(f"open_clip:mini-48/{tmp_path}/w.pt", CPU)
    assert not [one for one in recwarn if "pickle" in str(one.message)]  # one line says all


@pytest.mark.parametrize("kind", ["with a bias", "of the trainer", "of DRRho-CLIP"])
def test_a_local_file_of_weights_is_loaded(tmp_path: Path, light_tower: None, kind: str) -> None:
    """Weights of the sigmoid loss have a bias, at which open_clip itself stops (its issue 824).

    open_clip's trainer adds DistributedDataParallel's prefix to the names, and saves the optimizer's state, in which a
    learning rate is a number of NumPy. DRRho-CLIP, a fork, also saves a moving average for each pair.
    """
    torch.manual_seed(6)
    model = open_clip.create_model("light-48").eval()
    content = model.state_dict() | ({"logit_bias": torch.tensor(-10.0)} if kind == "with a bias" else {})
    if kind != "with a bias":
        optimizer = torch.optim.AdamW(model.parameters(), lr=np.cos(1.0)).state_dict()
        weights = {f"module.{name}": tensor for name, tensor in content.items()}
        content = {"epoch": 3, "name": "x", "state_dict": weights, "optimizer": optimizer}
        content |= {"u_im": torch.zeros(9), "scaler": {"scale": 65536.0}} if kind == "of DRRho-CLIP" else {}
    torch.save(content, tmp_path / "weights.pt")
    encoder = from_open_clip(f"open_clip:light-48/{tmp_path}/weights.pt", CPU)
    tokens = encoder.tokenize(["a photo of a dog"])
    with torch.no_grad():
        assert torch.allclose(encoder.text(tokens), model.encode_text(tokens, normalize=True), atol=1e-6)


def test_a_lower_precision_gives_close_embeddings_and_another_hash(light_tower: None) -> None:
    full, low = (from_open_clip("open_clip:light-48/random", CPU, precision) for precision in ("fp32", "bf16"))
    tokens = full.tokenize(["a photo of a dog"])
    assert low.text(tokens).dtype == torch.float32
    assert not torch.equal(full.text(tokens), low.text(tokens))
    torch.testing.assert_close(full.text(tokens), low.text(tokens), atol=0.03, rtol=0)
    assert full.provenance["precision"] != low.provenance["precision"]


def named(root: Path, name: str, seed: int = 0) -> RunConfig:
    config = prepared(root, epochs=1)
    config.name, config.seed, config.model.image.name = name, seed, "small:conv"  # with batch norms, built in no time
    config.schedule.warmup_steps, config.optimizer.lr = 0, 0.01
    return config


@pytest.fixture(scope="module")
def fine_tuned(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Train a run with averaged weights, and another one from its last weights; tests only read both."""
    root = tmp_path_factory.mktemp("fine_tuned")
    first = named(root, "start")
    first.train.ema, first.train.accumulation = 0.5, 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLIPX_CACHE", str(shared / "cache"))  # the fixture `cache` comes later
        start = trained(first)
        config = named(root, "end", seed=1)
        config.model.init = str(start)
        return start, trained(config)


def scores(rows: list[Result]) -> list[Result]:
    """Return the rows without the model's name and seed; the hashes stay."""
    return [replace(row, model="", seed=0) for row in rows if row.task == "retrieval"]


@pytest.mark.long
def test_rows_at_0_and_1_equal_those_of_the_two_runs(
    fine_tuned: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, end = fine_tuned
    config = EvalConfig(datasets=[fakes.captioned(tmp_path / "shots")], tasks=["retrieval"], device="cpu", workers=0)
    many.evaluate(replace(config, interpolate=[0.0, 0.5, 1.0]), [str(end)])
    for alpha, run in (("0", start), ("1", end)):
        one.evaluate(replace(config, checkpoint=str(run)))
        found = results.read(end / "interpolated" / alpha / "results.jsonl")
        assert scores(found) == scores(results.read(run / "results.jsonl"))
        assert found[0].model == f"end/s1 step 2, alpha {alpha}"
    half = results.read(end / "interpolated" / "0.5" / "results.jsonl")
    assert len({row.hashes["checkpoint"] for rows in (half, found) for row in rows}) == 2
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "300")  # wide enough for the names in the table
    other = trained(named(tmp_path, "other"))
    with pytest.raises(UserError, match="1 of 2 runs failed"):
        many.evaluate(replace(config, interpolate=[0.0, 1.0]), [str(end), str(other)])
    printed = capsys.readouterr().out
    assert "end/s1 step 2, alpha 0 " in printed and "end/s1 step 2, alpha 1 " in printed


def test_floating_point_weights_are_interpolated_and_counts_are_those_of_the_end(fine_tuned: tuple[Path, Path]) -> None:
    start, end = fine_tuned
    first, last = (load_file(resolve(run) / WEIGHTS) for run in (start, end))
    statistics = [name for name in first if name.endswith("running_var")]
    assert statistics and not any(torch.equal(first[name], last[name]) for name in statistics)
    config = RunFolder(end).load_config()
    model = clip.build_model(config)
    model.load_state_dict(last)
    assert interpolate(model, config, end, "digest", 0.25) == ""
    for key, value in model.state_dict().items():
        if value.is_floating_point():
            expected = 0.75 * first[key].double() + 0.25 * last[key].double()
            torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-7)
        else:
            assert torch.equal(value, last[key])


def test_at_0_a_run_from_a_file_has_the_weights_of_that_file(tmp_path: Path, light_tower: None) -> None:
    file, config = tmp_path / "published.pt", named(tmp_path, "end")
    published = open_clip_towers.create_model("light-48", None, "model.image", custom_text=False)
    torch.save(published.state_dict(), file)
    for tower in (config.model.image, config.model.text):
        tower.name, tower.pretrained = "open_clip:light-48", str(file)
    model = clip.build_model(config)
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert interpolate(model, config, tmp_path, "digest", 0.0) == ""
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    file.unlink()
    with pytest.raises(UserError, match=r"model.image.pretrained=.*published.pt is neither published weights nor a"):
        interpolate(model, config, tmp_path, "digest", 0.5)


def test_runs_without_start_weights_on_disk_are_refused(tmp_path: Path) -> None:
    quick = EvalConfig(datasets=[fakes.captioned(tmp_path / "shots")], device="cpu", workers=0, interpolate=[0.5])

    def refused(config: EvalConfig, message: str) -> None:
        with pytest.raises(UserError, match=message) as error:
            one.evaluate(config)
        assert "\n" not in str(error.value)

    start = named(tmp_path, "start")
    run = untrained(start)
    refused(replace(quick, checkpoint=str(run)), r"start weights on disk \(model.init, .*start/s0 started from random")
    refused(replace(quick, model="open_clip:mini-48/random"), "interpolate= needs a run with start weights, not model=")
    end = named(tmp_path, "end")
    end.model.init = str(run)
    changed = untrained(end)
    (changed / "environment.json").write_text('{"init": {"checkpoint": "step_1", "sha256": "0"}}')
    refused(
        replace(quick, checkpoint=str(changed)), r"start weights of .*end/s0, step_1; model.init=.* now gives others"
    )
    end.name, end.model.init = "lost", str(tmp_path / "nowhere")
    refused(replace(quick, checkpoint=str(untrained(end))), r"model.init=.*nowhere is missing")
