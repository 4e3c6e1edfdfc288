"""The command line: overrides set fields of the typed config; user errors end in one line and exit code 2."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli.settings.compose import compose_run
from clipx.errors import UserError
from tests.helpers.commands import clipx, clipx_here, tiny
from tests.helpers.folder import write_shards

MISTAKES = {  # command line -> part of the message
    "train": "recipe= is missing; allowed: ",
    "trian recipe=demo": "clipx trian is not known; did you mean 'train'",
    "train recipe=dmo": "recipe=dmo is not known; did you mean 'demo'",
    "train recipe=demo train.epoch=3": "train.epoch is not a setting; did you mean 'train.epochs'",
    "train recipe=demo +train.epoch=3": "train.epoch is not a setting; did you mean 'train.epochs'",
    "train recipe=demo ++nmae=x": "nmae is not a setting; did you mean 'name'",
    "train recipe=demo train.epochs=abc": "train.epochs=abc must be a whole number; allowed: epochs, 1 or more",
    "train recipe=demo data=flickr": "data=flickr is not known; did you mean 'flickr8k'",
    "train recipe=demo data=flickr8k": "data.root is needed for data=flickr8k",
    "train recipe=demo +objective.clipp.weight=1": "objective=clipp is not known; did you mean 'clip'",
    "train recipe=demo temperature.kind=lerned": "temperature.kind=lerned is not known; did you mean 'learned'",
    "train recipe=demo model.image.name=open_clip:ViT-B32": "did you mean 'open_clip:ViT-B-32'",
    "train recipe=demo model.image.name=ViT-B-32": "write open_clip:ViT-B-32",
    "train recipe=demo train.samples=null train.epochs=0": "train.epochs=0 is out of range; allowed: 1 or more",
    "train recipe=demo optimizer.betas=[0.9]": "optimizer.betas=[0.9] is out of range; allowed: two numbers",
    "train recipe=demo log.every=0": "log.every=0 is out of range",
    "train recipe=demo log.evaluate_every=5": "log.evaluate_every=5 needs evaluation sets",
    "train recipe=demo objective.clip.averag=true": "objective.clip.averag is not known; did you mean 'average'",
    "train recipe=demo objective.clip.average=off": "objective.clip.average='off' must be true or false",
    "train recipe=[demo]": "recipe=['demo'] must be one name",
    "eval checkpoint=x workers=-1": "workers=-1 is out of range",
    "train recipe=demo train.epochs=2": "train.epochs=2 and train.samples=16 are both set; allowed: one of them",
    "train recipe=demo train.precision=fp8": "train.precision=fp8 is not known",
    "train recipe=demo log.wandb=on": "log.wandb=on is not known; allowed: off, offline, online",
    "eval": "give one of RUN (a run directory) and model=",
    "eval checkpont=runs/demo": "checkpont is not a setting; did you mean 'checkpoint'",
    "eval checkpoint=nowhere": "checkpoint=nowhere is missing",
    "eval model=open_clip:ViT-B-23": "did you mean 'open_clip:ViT-B-32'",
    "eval model=open_clip:ViT-B-32/random": "datasets= is empty",
    "eval model=open_clip:RN50/nonsense datasets=[wds:x]": "published for RN50: openai, yfcc15m, cc12m",
    "eval model=open_clip:ViT-B-23 processes=2": "did you mean 'open_clip:ViT-B-32'",
    "eval checkpoint=nowhere processes=2": "checkpoint=nowhere is missing",
    "eval model=open_clip:mini-48/random datasets=[wds:x] precision=fp8 processes=2": "precision=fp8 is not known",
    "eval model=open_clip:mini-48/random datasets=[captions:x] prompts=simpel": "prompts=simpel is not known",
    "eval checkpoint=runs/a=b": "checkpoint=runs/a=b is not of the form key=value",
    "report": "`clipx report` needs RUN_OR_DIR...",
    "report nowhere": "nowhere",
    "report claims": "`clipx report claims` needs RUN_OR_DIR...; clipx report --help",
    "report claims .": "no run and no claims.json at or below .",
    "report missing-objects .": ". holds no captions_NAME.json",
    "ls recipe": "clipx ls recipe is not known; did you mean 'recipes'",
    "ls setings": "clipx ls setings is not known; did you mean 'settings'",
    "ls settings tempratur": "clipx ls settings tempratur is not known; did you mean 'temperature'",
    "check recipe=demo data=flickr8k": "data.root is needed",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_end_in_one_line_and_exit_code_2(line: str, tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=16)
    arguments = line.split()
    if arguments[0] == "train" and "data=" not in line and "recipe=demo" in line:
        arguments += [a for a in tiny(tmp_path / "shards")[1:] if a.partition("=")[0] not in line]
    done = clipx_here(*arguments, cwd=tmp_path)
    message = [text for text in done.stderr.splitlines() if text.startswith("clipx: ")]
    assert done.returncode == 2
    assert len(message) == 1 and MISTAKES[line] in message[0]


@pytest.mark.slow
def test_automatic_names_leave_out_settings_that_change_no_result() -> None:
    resumable = ["train.processes=2", "launch.nodes=2", "train.copy_to=file:///x", "data.workers=1"]
    assert compose_run(["recipe=demo", *resumable]).name == "demo"
    assert compose_run(
        ["recipe=demo", "train.batch_size=64", "data=flickr8k", "objective.positive.weight=0.1"]
    ).name == ("demo-flickr8k-objective.positive.weight_0.1-train.batch_size_64")


@pytest.mark.skipif(find_spec("submitit") is not None, reason="the extra is installed")
def test_a_missing_launcher_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(UserError, match=r"needs the extra `slurm`: pip install -e '\.\[slurm\]'"):
        compose_run(["recipe=demo", "hydra/launcher=submitit_slurm"])


def test_the_installed_command_prints_no_traceback(tmp_path: Path) -> None:
    done = clipx("train", "recipe=demo", "data=flickr8k", cwd=tmp_path)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line] == [
        "clipx: data.root is needed for data=flickr8k: the folder that holds train/*.tar"
    ]


@pytest.mark.slow
def test_a_sweep_continues_after_a_failed_job_and_names_runs_by_their_values(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=16)
    sweep = ["temperature.tau=0.1,0,0.2", "seed=3"]
    done = clipx_here("train", "-m", *tiny(tmp_path / "shards"), *sweep, cwd=tmp_path)
    assert done.returncode == 2
    assert "temperature.tau=0.0 is out of range; allowed: more than 0" in done.stderr
    finished = {p.parent.parent.name for p in tmp_path.glob("runs/*/s3/checkpoints")}
    assert len(finished) == 2
    common = (
        "demo-shards-data.split_train-schedule.warmup_steps_1-temperature.tau_{}-train.batch_size_8-train.samples_16"
    )
    assert finished == {common.format(tau) for tau in ("0.1", "0.2")}


@pytest.mark.slow
def test_own_recipes_and_hydras_options_work(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=16)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "quick.yaml").write_text(
        "# quick\nmodel: {image: {name: 'open_clip:mini-48'}, text: {name: 'open_clip:mini-48'}}\n"
        "train: {samples: 8, batch_size: 8}\nobjective: {clip: {average: false}}\n"
    )
    arguments = ["--config-dir", str(tmp_path / "mine"), "recipe=quick", *tiny(tmp_path / "shards")[1:]]
    shown = clipx_here("train", *arguments, "--cfg", "job", cwd=tmp_path)
    assert shown.returncode == 0 and "average: false" in shown.stdout
    done = clipx_here("train", *arguments, "name=mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "runs" / "mine" / "s0" / "log.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["step"] == 2


@pytest.mark.slow
def test_a_misspelt_key_in_a_recipe_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "quick.yaml").write_text("train: {epoch: 1}\n")
    done = clipx_here("train", "--config-dir", str(tmp_path / "mine"), "recipe=quick", cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean 'train.epochs'" in done.stderr


@pytest.mark.slow
def test_check_builds_the_run_and_does_a_step(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=16)
    done = clipx_here("check", *tiny(tmp_path / "shards"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "image tower   0.19 M parameters" in done.stdout
    assert "16 pairs, 16 decoded" in done.stdout and "for a step" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_ls_lists_every_table(tmp_path: Path) -> None:
    assert "demo" in clipx_here("ls", "recipes", cwd=tmp_path).stdout
    assert "symmetric InfoNCE" in clipx_here("ls", "terms", cwd=tmp_path).stdout
    assert "open_clip:ViT-B-32" in clipx_here("ls", "towers", cwd=tmp_path).stdout
    assert "flickr8k" in clipx_here("ls", "data", cwd=tmp_path).stdout
    assert "retrieval" in clipx_here("ls", "tasks", cwd=tmp_path).stdout
    assert "3.1" in clipx_here("ls", "claims", cwd=tmp_path).stdout


def test_ls_settings_prints_default_range_and_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    lines = clipx_here("ls", "settings", "temperature.tau", "eval", cwd=tmp_path).stdout.splitlines()
    rows = {line.split("  ")[0]: " ".join(line.split()) for line in lines}
    assert (
        rows["temperature.tau"] == "temperature.tau 0.07 more than 0 fixed: tau; learned, linear, cosine: initial tau"
    )
    assert rows["eval.device"].startswith("eval.device auto auto | cpu | cuda auto: CUDA")
    assert "temperature.kind" not in rows
    kept = [line.split() for line in clipx_here("ls", "settings", "train.ke", cwd=tmp_path).stdout.splitlines()[2:]]
    defaults = {"train.keep": "2", "train.keep_optimizer": "true"} | dict.fromkeys(
        ("train.keep_every", "train.keep_best"), "null"
    )
    assert [row[:3] for row in kept] == [[key, "*", default] for key, default in defaults.items()]


def test_the_order_of_overrides_is_not_in_a_runs_name() -> None:
    names = {
        compose_run(["recipe=demo", *overrides]).name
        for overrides in (
            ["optimizer.lr=1e-2", "mixing.kind=hard", "objective=dcl"],
            ["objective=dcl", "mixing.kind=hard", "optimizer.lr=1e-2"],
        )
    }
    assert names == {"demo-dcl-mixing.kind_hard-optimizer.lr_1e-2"}


def test_the_objective_counting_needs_keyword_labels() -> None:
    with pytest.raises(UserError, match=r"objective.keyword needs labels, but data.keywords is empty"):
        compose_run(["recipe=demo", "objective=counting"])
