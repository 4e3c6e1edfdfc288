"""Wrong input ends with exit code 2 and one line that names key, value and allowed values."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import clipx_here, tiny

OWN = {  # file of the user -> content
    "bare.yaml": "data: {name: x, source: scenes}\ntrain: {samples: 64, batch_size: 8}\n",
    "key.yaml": "train: {smaples: 64}\n",
    "choice.yaml": "defaults: [{override /objective: foo}]\ntrain: {samples: 64}\n",
    "broken.yaml": "train: [\n",
}
EXISTING = ("mine.yaml",)  # of the user; no command may replace it
PLUGIN = "plugins=[no_such_module]"
NO_MODULE = "plugins=no_such_module: there is no module no_such_module; install it"
SLOW = {"torch", "open_clip", "torchvision", "matplotlib", "transformers", "pandas", "sklearn", "wandb"}
GAP = "recipe=gap_mini"
NAMES = "allowed: one folder name of A-Z a-z 0-9 _ . + -, not starting with . + or -"
BEFORE_TORCH = {  # command line -> part of the message; refused before torch is imported, which takes seconds
    "train recipe=demo name=../../evil": f"name=../../evil is out of range; {NAMES}",
    "check recipe=demo train.processes=3": "train.batch_size=128 must be divisible by 3 (3 processes x",
    "train recipe=demo --lr 0.1": "unrecognized arguments: --lr 0.1; settings are written key=value; for",
    "check recipe=demo temperature.tau=0.1,0.2": "temperature.tau=0.1,0.2: several values need clipx train -m",
    "train recipe=demo train.samples=128 temperature.tau=0.3,0 -m": "temperature.tau=0: temperature.tau=0.0 is out of",
    "train recipe=demo --cfg job lr=1": "lr is not a setting; did you mean 'optimizer.lr'?",
    "train recipe=demo --cfg jbo seed=1": "argument --cfg/-c: invalid choice: 'jbo' (choose from 'job', ",
    "train recipe=demo -m --cfg job seed=0,1": "-m and --cfg do not work together: leave one out",
    "train recipe=demo --resolve": "--resolve needs --cfg job",
    "train recipe=demo sed": "sed is not of the form key=value",
    "train recipe=demo plugins": "plugins is not of the form key=value",
    "train recipe=demo ~plugins": "only terms of the objective can be removed",
    "train -m recipe=demo temperature.tau=0.1,0.2 name=x": "would share the folder x/s0: ",
    "check recipe=demo model.init=arm:clip": "model.init=arm:clip: recipe=demo has no arms; give the path of a run",
    "check recipe=demo data.augment=gpu": "data.augment=gpu is not known; allowed: device, workers",
    "check recipe=demo data.augment=device data.decode=fast": "not data.decode=fast; allowed: exact",
    "check recipe=demo data.cache=memory data.decode=fast": "allowed: data.decode=exact, or data.cache=none",
    "check recipe=frozen_flickr8k arm=clip data.augment=device": "embeds them once; allowed: data.augment=workers",
    "check recipe=demo runs=/scratch/${USER}": "Interpolation key 'USER' not found",
    "check recipe=demo runs=": "runs= is out of range; allowed: a folder",
    "train recipe=own": "recipes of your own: --config-dir FOLDER",
    "train recipe=mine": "; for mine.yaml, add --config-dir .",
    "ls claims 1.2": "clipx ls 1.2 is not known; allowed: ",
    "completion": "`clipx completion` needs bash or zsh; clipx completion --help",
    "completion tcsh": "clipx completion tcsh is not known; allowed: bash, zsh",
    "train recipe=bare": "recipe=bare does not set model.image.name, model.text.name: add them to the recipe or",
    "train recipe=key": "recipe own/key.yaml: train.smaples is not a setting; did you mean 'train.samples'",
    "check recipe=broken": "recipe own/broken.yaml is not valid YAML",
    f"train recipe=demo {PLUGIN}": NO_MODULE,
    f"eval model=open_clip:RN50 {PLUGIN}": NO_MODULE,
    f"ls terms {PLUGIN}": NO_MODULE,
    f"reproduce recipe=demo {PLUGIN}": NO_MODULE,
    f"theory {PLUGIN}": NO_MODULE,
    "train": "recipe= is missing; allowed: ",
    "trian recipe=demo": "clipx trian is not known; did you mean 'train'",
    f"train {GAP} arm=flt_4e2": "arm=flt_4e2 is not known; did you mean",
    f"train {GAP} arm=base,slrt": "arm=base,slrt must be one name, also in a sweep: run a command per arm",
    "train recipe=demo arm=base": "arm=base: this recipe has no arms",
    f"train {GAP} arm=slrt model.init=arm:bse": "did you mean 'arm:base'",
    "check recipe=demo data=flickr": "data=flickr is not known; did you mean 'flickr8k'",
    "check recipe=demo objective=counting": "objective.keyword needs labels, but data.keywords is empty",
    "train recipe=demo ++nmae=x": "nmae is not a setting; did you mean 'name'",
    "check recipe=demo train.epochs=abc": "train.epochs=abc must be a whole number; allowed: epochs, 1 or more",
    "check recipe=demo temperature.kind=lerned": "temperature.kind=lerned is not known; did you mean 'learned'",
    "check recipe=demo train.epochs=2 train.samples=16": "train.epochs=2 and train.samples=16 are both set; allowed:",
    "check recipe=demo data.features=true": "both towers are trained: set model.image.frozen=true or model.text.frozen",
    "check recipe=demo model.image.lora=4 model.image.trainable_blocks=1": "are both set; allowed: one of them",
    "check recipe=demo model.text.trainable_blocks=1": "model.text.trainable_blocks=1 needs model.text.frozen=true",
    "check recipe=embeddings arm=clip model.image.trainable_blocks=1": "needs model.points.kernel=none",
    "check recipe=demo data.views=3": "data.views=3 needs data.features=true and model.image.frozen=true",
    "check recipe=demo model.text.standardise=true": "model.text.standardise=true needs data.features=true",
    "check recipe=demo data.features=true model.image.frozen=true data.flip=true": "data.flip=true changes images, but",
    "check recipe=demo data.features=true model.text.frozen=true data.cache=none": "not data.cache=none; allowed: data",
    "check recipe=[demo]": "recipe=['demo'] must be one name",
    "train demo": "demo is not of the form key=value; did you mean recipe=demo?",
    "check recipe=demo train.learning_rate=1": "train.learning_rate is not a setting; did you mean 'optimizer.lr'",
    "check recipe=demo data.flip=maybe": "data.flip=maybe must be true or false",
    "check recipe=demo log.evaluate_every=5 data.evaluation=[]": "log.evaluate_every=5 needs evaluation sets",
    "train recipe=demo seed=0 seed=1": "seed is given twice: seed=0 and seed=1; leave one out",
    "check recipe=demo ~seed": "~seed: only terms of the objective can be removed, ~objective.TERM",
    "check recipe=demo optimizer.lr=null": "optimizer.lr=null must be a number; allowed: 0 or more",
    "check recipe=demo optimizer=null": "optimizer=null holds no settings (key: value lines)",
    "check recipe=demo objective.positive=0.1": "objective.positive=0.1 must be settings: objective.positive.NAME",
    "check recipe=demo train.samples=12": "train.samples=12 is less than one step of train.batch_size=128; allowed: 0",
    "train recipe=demo log.wandb=online": "log.wandb=online needs an API key of W&B, and this machine has none: run",
    "train recipe=demo data=mscoco data.root=nowhere": "data.root=nowhere: no folder",
    "train recipe=demo data=folder data.root=nowhere": "data.root=nowhere: no folder",
    "train recipe=demo data=folder data.root=~nobody_here/x": "~nobody_here/x: there is no user of this name",
    "eval checkpoint=nowhere": "checkpoint=nowhere is missing",
    "eval checkpont=runs/demo": "checkpont is not a setting; did you mean 'checkpoint'",
    "eval runs/x wandb=online": "wandb=online needs an API key of W&B",
    "eval checkpoint=runs/x datasets=cifar10": "datasets=cifar10 must be a list: datasets=[VALUE]",
    "eval checkpoint=runs/x processes=1 processes=2": "processes is given twice",
}
OTHERS = {  # the same, but some of them are refused after torch is imported
    "check recipe=demo train.keep_best=foo": "train.keep_best=foo must be min:METRIC or max:METRIC; metrics: ",
    "train recipe=demo launch.nodes=2 data.root=scenes": "launch.rendezvous=None must be HOST:PORT, one of the 2",
    "train recipe=demo launch.nodes=2 launch.rendezvous=node0:http": "launch.rendezvous=node0:http must be HOST:PORT",
    "check recipe=choice": "objective=foo is not known; allowed: align_clip, ",
    "train recipe=demo data=flickr8k": "data.root is needed for data=flickr8k: the data set as distributed, or",
    "train recipe=demo data=mscoco data.split=.": "the folder that holds the folder of images, ./, and data.",
    "check recipe=demo +objective.clipp.weight=1": "objective.clipp is not known; did you mean 'clip'",
    "check recipe=demo model.image.name=open_clip:ViT-B32": "did you mean 'open_clip:ViT-B-32'",
    "check recipe=demo model.image.name=ViT-B-32": "write open_clip:ViT-B-32",
    "check recipe=demo model.image.name=small:cnn": "did you mean 'small:conv' or 'small:vit'? allowed: small:conv, ",
    "check recipe=demo model.image.pretrained=openai": "small:conv has no published weights; allowed: null",
    "check recipe=demo model.image.size=36": "model.image.size=36 does not suit small:conv; allowed: multiples of 8",
    "check recipe=demo model.image.lora=4 model.image.frozen=true": "model.image.lora=4 trains adapters, so the tower",
    "check recipe=demo mixing.kind=hard": "mixing.kind=hard never mixes with mixing.probability=0; allowed: above 0",
    "check recipe=demo optimizer.kind=adamm": "optimizer.kind=adamm is not known; did you mean 'adamw'",
    "check recipe=demo optimizer.kind=timm:moun": "did you mean 'timm:muon'",
    "check recipe=demo data.scenes.omit=0.3 data.scenes.count_share=0.1": "data.scenes.omit=0.3 and data.scenes.cou",
    "check recipe=demo model.text.pooling=mean": "model.text.pooling=mean needs a tower named hf:, not small:",
    "train -m recipe=demo objective=clip,siglip objective.clip.average=true,maybe": "objective.clip.average='maybe'",
    "train -m recipe=demo objective=glob(cl*)": "objective=glob(cl*) is not known; allowed: ",
    "train -m recipe=demo seed=glob(*)": "seed=glob(*) must be a whole number",
    "eval model=open_clip:ViT-B-32 datasets=[cifar10]": "names no weights: add a published tag or a file, as in ",
    "eval": "give one of RUN (a run directory) and model=",
    "eval model=a,b datasets=[wds:x]": "model=a,b: run a command per value, or write a list as [a,b]",
    "eval checkpoint=": "give one of RUN (a run directory) and model=",
    "eval model=open_clip:ViT-B-23": "did you mean 'open_clip:ViT-B-32'",
    "eval a/s0 b/s0 out=x": "out=x would hold the results of 2 runs",
    "eval a/s0 b/s0 model=open_clip:mini-48": "give one of a/s0 and model=open_clip:mini-48",
    "eval model=open_clip:ViT-B-32/random": "datasets= is empty",
    "eval model=open_clip:mini-48/random datasets=[held_out]": "datasets=held_out needs a run",
    "eval model=open_clip:mini-48/random datasets=[..]": "datasets=.. has no layout: write folder:.., or another",
    "eval model=open_clip:RN50/nonsense datasets=[wds:x]": "published for RN50: openai, yfcc15m, cc12m",
    "eval model=open_clip:mini-48/random datasets=[wds:x] precision=fp8 processes=2": "precision=fp8 is not known",
    "check recipe=demo device=H10": "did you mean 'H100'? allowed: A100, A100-40, H100, H200, L40S",
    "check recipe=demo device=H100 processes=64 train.batch_size=32": "must be divisible by 64 (64 proc",
    "check recipe=demo processes=64": "processes=64 needs device=NAME; without it, set train.processes=N",
    "export run": "`clipx export` needs RUN_OR_CHECKPOINT and out=FILE.safetensors",
    "export run out=x.bin": "out=x.bin is out of range; allowed: FILE.safetensors, FILE.pt",
    "ls runs own": "no run at or below own",
    "watch nowhere": "nowhere is no folder",
    "watch .": "no run with a log.jsonl",
    "watch evry=2": "clipx watch: evry is not known; did you mean 'every'",
    "data": "`clipx data` needs a command; allowed: index, keywords",
    "data indx x": "did you mean 'index'",
    "data prepare cifar10": "clipx data prepare cifar10 is not known",
    "data pull cifar10 sets=": "sets= has no value",
    "data pull winoground sets=x": "winoground cannot be pulled; it comes from `hf download",
    "data prepare imagenet sets=x": "no x/imagenet/val, and no x/imagenet/ILSVRC2012_img_val.tar to unpack",
    "theory margin K=1": "K=1 is out of range; allowed: 2..12",
    "theory margin xi=2": "xi=2 is out of range; allowed: ",
    "theory popularity tau=0": "tau=0 is out of range; allowed: ",
    "theory popularity n=100,1": "n=100,1 is out of range; allowed: ",
    "theory popularity n=50": "n=50 is out of range; allowed: ",
    "theory popularity n=50,50": "n=50,50 is out of range; allowed: ",
    "theory pmi alpha=-1,0.5": "alpha=-1,0.5 is out of range; allowed: ",
    "theory pmi alpha=0.5": "alpha=0.5 is out of range; allowed: ",
    "theory pmi alpha=0,0": "alpha=0,0 is out of range; allowed: ",
    "theory pmi spread=1000": "spread=1000 is out of range; allowed: ",  # some probabilities would be 0
    "theory margin gamma=1.5": "at most K/(K-1) = 1.2 for K=6",
    "theory popularity n=10,many": "n=many must be a whole number",
    "theory margin pmi": "give one name",
    "theory all K=3": "K= needs the name of a problem",
    "bench": "give one of the names nuclr, wpse, or one recipe: clipx bench NAME",
    "bench nuclr arms=[sogclr]": "clipx bench nuclr has its own arms",
    "bench recipe=wpse_mini arms=[imqq]": "arms=imqq is not known; did you mean 'imq'",
    "bench recipe=wpse_mini reference=clap": "reference=clap is not known; did you mean 'clip'",
    "bench recipe=wpse_mini arms=[clip]": "arms=clip is the reference; allowed: gaussian",
    "bench recipe=demo": "recipe=demo has no arms to compare",
    "report": "`clipx report` needs RUN_OR_DIR...",
    "data verify a b": "`clipx data verify` needs FOLDER, 2 are given; ",
    "report nowhere": "clipx report nowhere: no such folder; allowed: a run, a folder of runs, or one of claims, ",
    "report claims .": "no run that tests a claim, and no claims.json, at or below .; clipx ls claims",
    "report missing-objects nowhere": "nowhere is no folder that holds captions_NAME.json and its instances_NAME.json",
    "ls settings tempratur": "clipx ls settings tempratur is not known; did you mean 'temperature'",
    "report claims x out=x": "clipx report claims: out is not known",
    "report claims runs/a=b": "no run folder at runs/a=b",  # an argument with a / before its = is a folder
    "reproduce": "recipe= is missing",
    "tune": "recipe= is missing: clipx tune recipe=NAME",
    f"tune {GAP} arms=bse": "recipe=gap_mini: arms=bse is not known; did you mean 'base'",
    f"tune {GAP} lr=1e-3,-1": "lr=1e-3,-1 is out of range; allowed: two or more numbers above 0, ascending",
    f"tune {GAP} tau=0.03,0.01": "tau=0.03,0.01 is out of range; allowed: two or more numbers above 0, ascending",
    "tune recipe=clip_reg_mini arms=clip tau=0.01,0.03": "tau= needs an arm with temperature.kind=fixed",
    "tune recipe=clip_reg_mini optimizer.lr=0": "optimizer.lr=[0.0, 0.0, 0.0] is out of range",
    "tune recipe=demo": "on=held_out needs data.held_out=SHARE; or score another set",
    "tune recipe=demo on=foo data.root=scenes": "on=foo is not known; did you mean",  # before scenes are rendered
    f"reproduce {GAP},gap_init_mini arms=bse": "recipe=gap_mini,gap_init_mini: arms=bse is not known; did you",
    f"reproduce {GAP} launch.slurm=": "SLURM is not on this machine (no sbatch on the PATH): submit on a login node",
    f"tune {GAP} launch.slurm=": "clipx tune needs the scores of a grid before it extends it",
    "train recipe=demo launch.slurm=": "SLURM is not on this machine (no sbatch on the PATH): submit on a login node",
    "train -m recipe=demo name=x seed=0 data.workers=1,2 launch.slurm=": "would share a directory: leave name= out",
    f"reproduce {GAP} dry=ture": "dry=ture must be true or false",
    f"reproduce {GAP} arm=base": "arm=base is for clipx train; here write arms=base",
    f"reproduce {GAP} seed=1": "seed=1 is for clipx train; here write seeds=3",
    f"reproduce {GAP} temperature.tau=0.05": "temperature.tau= cannot be set for all runs, because arm=flt_1e-2",
    f"reproduce {GAP} device=H200": "device=H200 needs dry=true; runs take train.device=",
    f"reproduce {GAP} arms=base,slrt seeds=1 name=mine dry=true": "would share a directory: leave name= out",
    f'reproduce {GAP} arms=base claims=["4.13"] dry=true': "claims=4.13 is not known; did you mean",
    f"reproduce {GAP} looks=[5,3]": "looks=[5, 3] must be increasing numbers of seeds, the first at",
    f"reproduce {GAP} first_seed=5": "first_seed=5 is out of range; allowed: 0 (verdicts), 100 (replication); 1000: cl",
    f"reproduce {GAP} first_seed=100 seeds=9": "seeds=9: a replication has 8 seeds, 100 to 107",
    f"reproduce {GAP} seeds=101": "seeds=101: verdicts have at most 100 seeds, 0 to 99",
    f"reproduce {GAP} scale=samples": "scale=samples: recipe=gap_mini has no ladder; add one to the recipe",
    "reproduce recipe=scaling_mini scale=depth": "recipe=scaling_mini: scale=depth is not known; allowed: samples",
    "reproduce recipe=scaling_mini scale=samples train.samples=10": "train.samples is given twice",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with the files EXISTING and own/OWN; take W&B's keys out of the environment."""
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "own").mkdir()
    for name, text in OWN.items():
        (tmp_path / "own" / name).write_text(text)
    for name in EXISTING:
        (tmp_path / name).write_text("the user's")
    return tmp_path


def arguments(line: str) -> list[str]:
    return [*line.split(), *(["--config-dir=own"] if "recipe=" in line else [])]


def answers_without_torch(lines: list[str], folder: Path) -> dict[str, tuple[int, str]]:
    """Return line -> exit code and stderr of each command, all run in a process that may import no SLOW package."""
    code = (
        "import contextlib, io, json, sys; from cli.main import main\n"
        f"slow = {SLOW}\n"
        "for given in json.loads(sys.argv[1]):\n"
        "    sys.argv, error, code = ['clipx', *given], io.StringIO(), 0\n"
        "    with contextlib.redirect_stderr(error):\n"
        "        try: main()\n"
        "        except SystemExit as end: code = end.code\n"
        "    found = slow & set(sys.modules)\n"
        "    print(json.dumps([f'{found} imported' if found else code, error.getvalue()]))"
    )
    command = [sys.executable, "-c", code, json.dumps([arguments(line) for line in lines])]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=folder, check=True).stdout
    return dict(zip(lines, map(json.loads, printed.splitlines()), strict=True))


def faults(found: dict[str, tuple[int, str]], expected: dict[str, str]) -> list[str]:
    """Return the lines that are not refused as expected, with what they printed."""
    return [
        f"clipx {line}: exit code {code}, {message!r} lacks {expected[line]!r}"
        for line, (code, message) in found.items()
        if code != 2 or not re.fullmatch(f"clipx: .*{re.escape(expected[line])}.*\n", message)
    ]


def test_wrong_inputs_are_refused_in_one_line(folder: Path) -> None:
    done = {line: clipx_here(*arguments(line), cwd=folder, code=None) for line in OTHERS}
    assert faults({line: (one.returncode, one.stderr) for line, one in done.items()}, OTHERS) == []
    assert {path.name for path in folder.iterdir()} <= {"own", "runs", *EXISTING}, "a file was written"
    assert {(folder / name).read_text() for name in EXISTING} == {"the user's"}


def test_wrong_inputs_are_refused_before_torch_is_imported(folder: Path) -> None:
    assert faults(answers_without_torch([*BEFORE_TORCH], folder), BEFORE_TORCH) == []
    assert {path.name for path in folder.iterdir()} == {"own", *EXISTING}, "a file was written"


def test_a_broken_recipe_does_not_block_the_others(folder: Path) -> None:
    shown = clipx_here("train", "recipe=demo", "--config-dir=own", "--cfg", "job", cwd=folder)
    assert "batch_size: 128" in shown.stdout
    listed = clipx_here("ls", "recipes", "--config-dir=own", cwd=folder)
    assert "broken.yaml is not valid YAML" in listed.stdout and "demo " in listed.stdout


def test_a_run_folder_that_cannot_be_written_is_named(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").touch()  # a file instead of a read-only folder, because root may write into every folder
    done = clipx_here("train", *tiny(shards), "name=a", cwd=tmp_path, code=2)
    assert done.stderr.splitlines() == ["clipx: runs/a/s0 cannot be written: Not a directory"]
