"""Wrong input ends in one line and exit code 2; the inputs in WRONG are refused before torch is imported."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.commands import clipx, clipx_here, tiny
from tests.helpers.folder import write_shards

OWN = {  # file of the user -> content
    "bare.yaml": "data: {name: x, source: scenes}\ntrain: {samples: 64, batch_size: 8}\n",
    "key.yaml": "train: {smaples: 64}\n",
    "group.yaml": "trian: {samples: 64}\n",
    "choice.yaml": "defaults: [{override /objective: foo}]\ntrain: {samples: 64}\n",
    "broken.yaml": "train: [\n",
}
NAMES = "allowed: one folder name of A-Z a-z 0-9 _ . + -, not starting with . + or -"
WRONG = {  # command line -> part of the message
    "train recipe=demo name=../../evil": f"name=../../evil is out of range; {NAMES}",
    "train recipe=demo name=": f"name= is out of range; {NAMES}",
    "train recipe=demo name=/tmp/evil": f"name=/tmp/evil is out of range; {NAMES}",
    "train recipe=demo name=läuf": f"name=läuf is out of range; {NAMES}",
    "train recipe=demo name='läuf'": f"name=läuf is out of range; {NAMES}",
    "train recipe=demo train.processes=3": "train.batch_size=128 must be divisible by 3 (3 processes x",
    "check recipe=demo train.processes=3": "train.batch_size=128 must be divisible by 3 (3 processes x",
    "train recipe=demo --lr 0.1": "--lr is not an option; settings are written key=value: optimizer.lr=...",
    "train recipe=demo temperature.tau=0.1,0.2": "temperature.tau=0.1,0.2: several values need clipx train -m",
    "train recipe=demo temperature.tau=0.3,0 -m seed=1": "temperature.tau=0: temperature.tau=0.0 is out of range",
    "train recipe=demo --cfg job lr=1": "lr is not a setting; did you mean 'optimizer.lr'?",
    "train recipe=demo --cfg jbo seed=1": "argument --cfg/-c: invalid choice: 'jbo' (choose from 'job', ",
    "train recipe=demo --cfg": "argument --cfg/-c: expected one argument",
    "train recipe=demo -m --cfg job seed=0,1": "-m and --cfg do not work together: leave one out",
    "train recipe=demo --resolve": "--resolve needs --cfg job",
    "train recipe=demo sed": "sed is not of the form key=value",
    "train -m recipe=demo temperature.tau=0.3,0": "temperature.tau=0: temperature.tau=0.0 is out of range",
    "train -m recipe=demo temperature.tau=0.1,0.2 name=x": "would share the folder x/s0: leave name= out",
    "train recipe=demo model.init=arm:clip": "model.init=arm:clip: recipe=demo has no arms; give the path of a run",
    f"train recipe=demo seed={2**64}": f"seed={2**64} is out of range; allowed: whole numbers up to 2^64 - 1",
    "train recipe=demo runs=": "runs= is out of range; allowed: a folder",
    "train recipe=own": "recipes of your own: --config-dir FOLDER",
    "check runs/mine/s0": "runs/mine/s0 is not of the form key=value",
    "ls claims 1.2": "clipx ls 1.2 is not known; allowed: ",
    "train recipe=bare": "recipe=bare does not set model.image.name, model.text.name: add them to the recipe or",
    "train recipe=key": "recipe=key: train.smaples in own/key.yaml is not a setting; did you mean 'train.samples'",
    "train recipe=group": "recipe=group: trian.samples in own/group.yaml is not a setting; did you mean 'train.",
    "train recipe=broken": "recipe own/broken.yaml is not valid YAML",
    "train": "recipe= is missing; allowed: ",
    "trian recipe=demo": "clipx trian is not known; did you mean 'train'",
    "train recipe=dmo": "recipe=dmo is not known; did you mean 'demo'",
    "train recipe=demo train.epoch=3": "train.epoch is not a setting; did you mean 'train.epochs'",
    "train recipe=demo +train.epoch=3": "train.epoch is not a setting; did you mean 'train.epochs'",
    "train recipe=demo ++nmae=x": "nmae is not a setting; did you mean 'name'",
    "train recipe=demo train.epochs=abc": "train.epochs=abc must be a whole number; allowed: epochs, 1 or more",
    "train recipe=demo data=flickr": "data=flickr is not known; did you mean 'flickr8k'",
    "train recipe=demo temperature.kind=lerned": "temperature.kind=lerned is not known; did you mean 'learned'",
    "train recipe=demo train.samples=null train.epochs=0": "train.epochs=0 is out of range; allowed: 1 or more",
    "train recipe=demo optimizer.betas=[0.9]": "optimizer.betas=[0.9] is out of range; allowed: two numbers",
    "train recipe=demo log.every=0": "log.every=0 is out of range",
    "train recipe=demo train.epochs=2 train.samples=16": "train.epochs=2 and train.samples=16 are both set; allowed:",
    "train recipe=demo train.precision=fp8": "train.precision=fp8 is not known",
    "train recipe=demo log.wandb=on": "log.wandb=on is not known; allowed: off, offline, online",
    "train recipe=[demo]": "recipe=['demo'] must be one name",
    "train demo": "demo is not of the form key=value; did you mean recipe=demo?",
    "train recipe=demo optimizer.lr=abc": "optimizer.lr=abc must be a number; allowed: 0 or more",
    "train recipe=demo train.samples=1.5": "train.samples=1.5 must be a whole number; allowed: samples, 0 or more",
    "train recipe=demo data.flip=maybe": "data.flip=maybe must be true or false",
    "train recipe=demo log.evaluate_every=5 data.evaluation=[]": "log.evaluate_every=5 needs evaluation sets",
    "train recipe=demo lr=abc": "lr is not a setting; did you mean 'optimizer.lr'?",
    "train recipe=demo seed=0 seed=1": "seed is given twice: seed=0 and seed=1; leave one out",
    "train recipe=demo objective.positive=0.1": "objective.positive=0.1: write objective.positive.weight=0.1",
    "train recipe=demo train.samples=12": "train.samples=12 is less than one step of train.batch_size=128; allowed: 0",
    "train recipe=demo train.samples=1280": "schedule.warmup_steps=100 is longer than the run: train.samples=1280",
    "train recipe=demo train.samples=null train.epochs=2 schedule.warmup_epochs=3": "warmup_epochs=3 is longer",
    f"train recipe=demo {' '.join(f'objective.clip.p{i}={i}' for i in range(20))}": "add a short name=NAME",
    "train recipe=demo log.wandb=online": "log.wandb=online needs an API key of W&B, and this machine has none: run",
    "eval checkpont=runs/demo": "checkpont is not a setting; did you mean 'checkpoint'",
    "eval checkpoint=runs/a=b": "checkpoint=runs/a=b is not of the form key=value",
    "eval runs/x wandb=online": "wandb=online needs an API key of W&B",
    "eval checkpoint=runs/x datasets=cifar10": "datasets=cifar10 must be a list: datasets=[cifar10]",
    "eval checkpoint=runs/x processes=1 processes=2": "processes is given twice",
    "eval checkpoint=runs/x worker=2": "worker is not a setting; did you mean 'workers'",
}
AFTER_TORCH = {  # the same, but some of them are refused after torch is imported
    "train recipe=choice": "objective=foo is not known; allowed: align_clip, clip, ",
    "train recipe=demo data=flickr8k": "data.root is needed for data=flickr8k: the folder that holds train/*.tar",
    "check recipe=demo data=flickr8k": "data.root is needed",
    "train recipe=demo +objective.clipp.weight=1": "objective=clipp is not known; did you mean 'clip'",
    "train recipe=demo model.image.name=open_clip:ViT-B32": "did you mean 'open_clip:ViT-B-32'",
    "train recipe=demo model.image.name=ViT-B-32": "write open_clip:ViT-B-32",
    "train -m recipe=demo objective=clip,foo": "objective=foo is not known; allowed: align_clip, clip, ",
    "eval model=open_clip:ViT-B-32 datasets=[cifar10]": "names no weights: add a published tag or a file, as in ",
    "eval": "give one of RUN (a run directory) and model=",
    "eval checkpoint=x workers=-1": "workers=-1 is out of range",
    "eval checkpoint=nowhere": "checkpoint=nowhere is missing",
    "eval checkpoint=nowhere processes=2": "checkpoint=nowhere is missing",
    "eval model=open_clip:ViT-B-23": "did you mean 'open_clip:ViT-B-32'",
    "eval model=open_clip:ViT-B-23 processes=2": "did you mean 'open_clip:ViT-B-32'",
    "eval model=open_clip:ViT-B-32/random": "datasets= is empty",
    "eval model=open_clip:RN50/nonsense datasets=[wds:x]": "published for RN50: openai, yfcc15m, cc12m",
    "eval model=open_clip:mini-48/random datasets=[wds:x] precision=fp8 processes=2": "precision=fp8 is not known",
    "report": "`clipx report` needs RUN_OR_DIR...",
    "report nowhere": "nowhere",
    "report claims": "`clipx report claims` needs RUN_OR_DIR...; clipx report --help",
    "report claims .": "no run that tests a claim, and no claims.json, at or below .; clipx ls claims",
    "report missing-objects .": ". holds no captions_NAME.json",
    "ls recipe": "clipx ls recipe is not known; did you mean 'recipes'",
    "ls setings": "clipx ls setings is not known; did you mean 'settings'",
    "ls settings tempratur": "clipx ls settings tempratur is not known; did you mean 'temperature'",
}


@pytest.fixture(scope="module")
def own_recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    for name, text in OWN.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def folder(own_recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "own").symlink_to(own_recipes)
    return tmp_path


def arguments(line: str) -> list[str]:
    return [*line.split(), *(["--config-dir=own"] if "recipe=" in line else [])]


def test_a_recipe_in_this_folder_is_refused_with_the_option_that_finds_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN["bare.yaml"])
    done = clipx_here("train", "recipe=mine", cwd=tmp_path, code=2)
    assert done.stderr == "clipx: recipe=mine is not known; for mine.yaml in this folder, add --config-dir .\n"


@pytest.mark.parametrize("line", WRONG | AFTER_TORCH)
def test_a_wrong_input_is_refused_in_one_line(line: str, folder: Path) -> None:
    done = clipx_here(*arguments(line), cwd=folder, code=2)
    (message,) = done.stderr.splitlines()
    assert message.startswith("clipx: ") and (WRONG | AFTER_TORCH)[line] in message
    written = {path.name for path in folder.iterdir()} - {"own"}
    assert not written or (line in AFTER_TORCH and written == {"runs"}), "a file was written"


def test_wrong_inputs_are_refused_before_torch_is_imported(folder: Path) -> None:
    code = (
        "import sys; from cli.main import main\n"
        "for line in sys.argv[1:]:\n"
        "    sys.argv = ['clipx', *line.split('|')]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert end.code == 2, line\n"
        "    assert 'torch' not in sys.modules, line"
    )
    lines = ["|".join(arguments(line)) for line in WRONG]
    done = subprocess.run([sys.executable, "-c", code, *lines], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == len(WRONG)


def test_a_broken_recipe_does_not_block_the_others(folder: Path) -> None:
    shown = clipx_here("train", "recipe=demo", "--config-dir=own", "--cfg", "job", cwd=folder)
    assert "batch_size: 128" in shown.stdout
    listed = clipx_here("ls", "recipes", "--config-dir=own", cwd=folder)
    assert "broken.yaml is not valid YAML" in listed.stdout and "demo " in listed.stdout


def test_a_run_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=16)
    (tmp_path / "runs").touch()  # a file instead of a read-only folder, because root may write into every folder
    done = clipx_here("train", *tiny(tmp_path / "shards"), "name=a", cwd=tmp_path, code=2)
    assert done.stderr.splitlines() == ["clipx: runs/a/s0 cannot be written: Not a directory"]


@pytest.mark.slow
def test_a_diverged_run_exits_with_code_3_each_time(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=16)
    hot = [*tiny(tmp_path / "shards", samples=160), "name=hot", "optimizer.lr=1e30", "train.max_bad_steps=2"]
    for _ in range(2):
        done = clipx_here("train", *hot, cwd=tmp_path, code=3)
        (message,) = [line for line in done.stderr.splitlines() if "diverged" in line]
        assert message.startswith("clipx: runs/hot/s0 diverged at step ")


@pytest.mark.slow
def test_a_run_without_samples_saves_the_untrained_model(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=16)
    clipx_here("train", *tiny(tmp_path / "shards", samples=0), "name=none", cwd=tmp_path)
    assert (tmp_path / "runs/none/s0/checkpoints/step_00000000").is_dir()
    clipx_here("eval", "checkpoint=runs/none/s0", "datasets=[captions:shards/train]", cwd=tmp_path)
    clipx_here("report", "runs/none", cwd=tmp_path)


@pytest.mark.slow
def test_a_table_whose_images_are_all_missing_does_not_pass_the_check(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,caption\n" + "".join(f"{i}.jpg,text {i}\n" for i in range(20)))
    data = ["data=csv", f"data.root={tmp_path}", "data.annotations=t.csv"]
    done = clipx_here("check", "recipe=demo", *data, "train.batch_size=8", cwd=tmp_path, code=2)
    (message,) = done.stderr.splitlines()
    assert message.startswith("clipx: cannot use data: all samples of a batch are bad")


@pytest.mark.long
@pytest.mark.parametrize("command", ["train", "eval"])
def test_ctrl_c_at_start_up_prints_one_line(command: str, tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=16)
    given = {
        "train": ["train", *tiny(tmp_path / "shards", samples=1600), "name=a"],
        "eval": ["eval", "model=open_clip:mini-48/random", f"datasets=[captions:{tmp_path}/shards/train]"],
    }
    start = [sys.executable, "-m", "cli.main", *given[command]]
    stopped = 0
    for seconds, presses in ((1.0, 1), (2.0, 5), (4.0, 1)):
        process = subprocess.Popen(start, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
        time.sleep(seconds)
        for _ in range(presses):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.1)
        lines = [line for line in process.communicate()[1].splitlines() if line]
        if process.returncode in (130, -signal.SIGINT):  # otherwise it ended before the signal, or training saved (75)
            assert lines[-1] == "clipx: stopped" and not [line for line in lines if "Traceback" in line]
            stopped += 1
    assert stopped, "no process was still starting when the signal came"


@pytest.mark.long
def test_folders_of_the_user_with_our_names_do_not_replace_our_code(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=16)
    for name in ("cli", "evaluation", "clipx"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the file of the user')\n")
    command = [sys.executable, "-P", "-m", "cli.main"]  # does not search the working directory
    given = ["train", *tiny(tmp_path / "shards"), "train.processes=2", "train.device=cpu", "name=two"]
    done = subprocess.run([*command, *given], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert clipx("ls", "terms", cwd=tmp_path, code=None).returncode != 0, (
        "without -P, the folders of the user must be imported, or this test checks nothing"
    )
