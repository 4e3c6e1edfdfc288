"""Encoders embed as the trained or published models do, and their hashes tell models apart."""

from pathlib import Path

import open_clip
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from clipx.errors import UserError
from clipx.models import clip
from clipx.run import checkpoint
from clipx.run.folder import RunFolder
from evaluation.embedding.encoder import from_checkpoint, from_open_clip
from tests.helpers.runs import prepared, trained

CPU = torch.device("cpu")
IMAGE = Image.effect_noise((60, 50), 80).convert("RGB")


def run_of(root: Path, epochs: int) -> Path:
    config = prepared(root, epochs=epochs)
    config.name = f"e{epochs}"
    return trained(config)


def test_a_checkpoint_embeds_as_its_model_does(tmp_path: Path) -> None:
    run = run_of(tmp_path, epochs=1)
    encoder, found = from_checkpoint(run, CPU)
    assert found == run
    model = clip.build_model(RunFolder(run).load_config())
    checkpoint.load_weights(model, checkpoint.resolve(run))
    model.eval()
    pixels = encoder.preprocess(IMAGE)[None]
    tokens = encoder.tokenize(["a red picture", "two dogs"])
    assert pixels.shape == (1, 3, 48, 48)
    with torch.no_grad():
        assert torch.allclose(encoder.image(pixels), model.encode_image(pixels), atol=1e-6)
        assert torch.allclose(encoder.text(tokens), model.encode_text(tokens), atol=1e-6)
    assert torch.allclose(encoder.text(tokens).norm(dim=-1), torch.ones(2), atol=1e-6)


def test_hashes_tell_checkpoints_apart(tmp_path: Path) -> None:
    one, _ = from_checkpoint(run_of(tmp_path, epochs=1), CPU)
    two, _ = from_checkpoint(run_of(tmp_path, epochs=2), CPU)
    assert one.provenance["checkpoint"] != two.provenance["checkpoint"]
    assert one.provenance["transform"] == two.provenance["transform"]
    assert one.name == "e1/s0 step 2"
    assert two.name == "e2/s0 step 4"


def test_averaged_weights_are_loaded_and_have_another_hash(tmp_path: Path) -> None:
    config = prepared(tmp_path, epochs=1)
    config.train.ema, config.train.accumulation = 0.5, 2
    run = trained(config)
    last, averaged = from_checkpoint(run, CPU)[0], from_checkpoint(run, CPU, averaged=True)[0]
    assert averaged.provenance["checkpoint"] != last.provenance["checkpoint"]
    assert averaged.name == f"{last.name} ema"
    model = clip.build_model(config, pretrained=False).eval()
    checkpoint.load_weights(model, checkpoint.resolve(run), checkpoint.AVERAGED)
    pixels = last.preprocess(IMAGE)[None]
    with torch.no_grad():
        assert torch.allclose(averaged.image(pixels), model.encode_image(pixels), atol=1e-6)
    assert not torch.allclose(averaged.image(pixels), last.image(pixels), atol=1e-6)


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


@pytest.mark.parametrize("content", [b"", b"not weights", b"\x80\x04K\x01."], ids=["empty", "text", "pickle"])
def test_a_file_without_weights_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(UserError, match=r"w.pt does not hold weights of mini-48"):
        from_open_clip(f"open_clip:mini-48/{tmp_path}/w.pt", CPU)


@pytest.mark.parametrize("by_trainer", [False, True])
def test_a_local_file_of_weights_or_of_open_clips_trainer_is_loaded(tmp_path: Path, by_trainer: bool) -> None:
    """The trainer adds DistributedDataParallel's prefix to the names of weights, and saves the optimizer's state."""
    torch.manual_seed(6)
    model = open_clip.create_model("mini-48").eval()
    content = model.state_dict()
    if by_trainer:
        optimizer = torch.optim.AdamW(model.parameters()).state_dict()
        weights = {f"module.{name}": tensor for name, tensor in content.items()}
        content = {"epoch": 3, "name": "x", "state_dict": weights, "optimizer": optimizer}
    torch.save(content, tmp_path / "weights.pt")
    encoder = from_open_clip(f"open_clip:mini-48/{tmp_path}/weights.pt", CPU)
    tokens = encoder.tokenize(["a photo of a dog"])
    with torch.no_grad():
        assert torch.allclose(encoder.text(tokens), model.encode_text(tokens, normalize=True), atol=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_lower_precision_gives_close_embeddings_and_another_hash(precision: str) -> None:
    full, low = (
        from_open_clip("open_clip:mini-48/random", CPU),
        from_open_clip("open_clip:mini-48/random", CPU, precision),
    )
    tokens = full.tokenize(["a photo of a dog"])
    assert low.text(tokens).dtype == torch.float32
    assert not torch.equal(full.text(tokens), low.text(tokens))
    torch.testing.assert_close(full.text(tokens), low.text(tokens), atol=0.03, rtol=0)
    assert full.provenance["precision"] != low.provenance["precision"]


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(UserError, match=r"precision=fp8 is not known; .*bf16, fp16, fp32"):
        from_open_clip("open_clip:mini-48/random", CPU, "fp8")
