"""Recipes of fine-tuning: all arms continue one run; a model that open_clip saved goes through training and export."""

from pathlib import Path

import open_clip
import pytest
import torch

from cli.export.command import export
from cli.reproduce.command import evaluations_of
from cli.settings.compose import compose_eval, compose_run
from cli.settings.recipes import recipe
from clipx import objectives
from clipx.models import clip
from clipx.run import checkpoint
from clipx.run.folder import RunFolder, earlier_runs
from evaluation.claims.measures import canonical_name
from tests.helpers.runs import trained

RECIPES = ("finetune_mini", "finetune_flickr30k", "finetune_mscoco")
OTHERS = ["clip", "clip_reg", "siglip", "sogclr", "nuclr", "tau_01", "tau_07"]
OTHERS += ["frozen_image", "frozen_text", "layer_decay", "mixing", "distill", "feature_distill"]
ONLY_IN_BLOCKS = ["last_block", "lora"]  # the towers of the miniature have no blocks of linear layers


@pytest.mark.parametrize("name", RECIPES)
def test_all_arms_continue_the_start_run_and_some_evaluation_sets_are_kept(name: str) -> None:
    assert list(recipe(name).arms) == ["start", *OTHERS, *(ONLY_IN_BLOCKS if name != "finetune_mini" else [])]
    configs = {arm: compose_run([f"recipe={name}", f"arm={arm}", "data.root=x"]) for arm in recipe(name).arms}
    assert configs["start"].model.init is None
    for arm, config in configs.items():
        if arm == "start":
            continue
        assert set(earlier_runs(config)) == {Path("runs") / f"{name}-start" / "s0"}
        needs = objectives.build(config.objective, num_samples=1000).needs
        assert ("bias" in needs) == (config.temperature.bias is not None), arm
    data = configs["clip"].data
    names = {canonical_name(part) for entry in data.evaluation for part in entry.split(":")}
    assert {canonical_name(kept) for kept in data.kept} <= names
    assert 0 < len(data.kept) < len(data.evaluation)


def test_the_miniature_trains_on_a_new_world_and_evaluates_on_both() -> None:
    start, tuned = (compose_run(["recipe=finetune_mini", f"arm={arm}"]).data for arm in ("start", "clip"))
    assert (start.scenes.world, tuned.scenes.world) == ("first", "second")
    assert start.evaluation == tuned.evaluation
    assert recipe("finetune_mini").seeds >= 8


def test_only_runs_with_start_weights_are_interpolated() -> None:
    start, tuned = (evaluations_of(compose_run(["recipe=finetune_mini", f"arm={arm}"])) for arm in ("start", "clip"))
    assert [compose_eval(settings).interpolate for settings in tuned] == [[], [0.25, 0.5, 0.75]]
    assert start == tuned[:1]


@pytest.mark.long
@pytest.mark.real_data
def test_weights_saved_by_open_clip_are_fine_tuned_and_return_to_open_clip(tmp_path: Path, real_data: Path) -> None:
    weights = tmp_path / "weights.pt"
    torch.manual_seed(0)
    torch.save(open_clip.create_model("ViT-B-32").state_dict(), weights)
    data = ["data=flickr8k", f"data.root={real_data / 'flickr8k'}", "data.workers=0", f"runs={tmp_path / 'runs'}"]
    towers = [f"model.{tower}.pretrained={weights}" for tower in ("image", "text")]
    train = ["train.batch_size=8", "train.precision=fp32", "optimizer.lr=1e-3"]
    train += ["optimizer.kind=sgd"]  # without AdamW's moments the test needs 3 GB
    short = ["train.samples=16", "schedule.warmup_steps=0"]
    for arm, length in (("start", []), ("clip", short)):
        chosen = ["recipe=finetune_flickr30k", f"arm={arm}", f"name=finetune_flickr30k-{arm}"]
        config = compose_run([*chosen, *data, *towers, *train, *length])
        trained(config)
    run = RunFolder.of(config).path
    published = open_clip.create_model("ViT-B-32", pretrained=str(weights)).eval()
    weights.unlink()
    out = tmp_path / "tuned.safetensors"
    export([str(run), f"out={out}"])
    tuned = open_clip.create_model("ViT-B-32", pretrained=str(out)).eval()
    ours = clip.build_model(config, pretrained=False).eval()
    checkpoint.load_weights(ours, checkpoint.resolve(run))
    pixels, tokens = torch.randn(2, 3, 224, 224), torch.randint(1, 999, (2, 77))
    with torch.no_grad():
        torch.testing.assert_close(tuned.encode_image(pixels, normalize=True), ours.encode_image(pixels))
        torch.testing.assert_close(tuned.encode_text(tokens, normalize=True), ours.encode_text(tokens))
        moved = (tuned.encode_image(pixels, normalize=True) - published.encode_image(pixels, normalize=True)).norm()
    assert 0 < float(moved) < 1, "the run must start from the saved weights, and change them"
