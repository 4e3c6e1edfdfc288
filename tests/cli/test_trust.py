"""Files of other people start no program, import no code, write nothing outside, and end in one line.

Each file is hostile in one way. test_random_values.py has random values instead.
"""

import json
import os
import shutil
import time
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cli.settings.recipes import load_recipe
from cli.train import train
from clipx.config.schema import DataConfig, RunConfig
from clipx.data.sources.streams import Stream
from clipx.errors import UserError
from clipx.run.checkpoint import WEIGHTS, checkpoints, load_weights, read_manifest
from clipx.run.folder import RunFolder
from clipx.run.log import RunLog
from clipx.utils.trust import PERMITTED, load_json, load_yaml, permit
from tests.helpers.commands import clipx_here

SMALL = "train.batch_size=8"  # for steps that are done before the files of a recipe are opened
RECIPES = {  # name -> recipe, and what the line names
    "pipe": ("data: {source: webdataset, num_samples: 128, urls: ['pipe:touch PWNED; cat x']}", "pipe:touch PWNED"),
    "pipe_in_parts": (
        "data: {source: webdataset, num_samples: 128, split: pi, urls: ['${data.split}pe:touch PWNED']}",
        "pipe:touch PWNED",
    ),
    "gsutil": ("data: {source: webdataset, num_samples: 128, urls: ['gs://x/0.tar']}", "starts a program"),
    "pipe_as_root": ("data: {source: webdataset, num_samples: 128, root: 'pipe:touch PWNED'}", "pipe:touch PWNED"),
    "quote": ("data: {source: webdataset, num_samples: 128, urls: ['http://x/''; touch PWNED; ''']}", "quotes"),
    "logging": ("hydra: {job_logging: {handlers: {h: {filename: PWNED}}}}", "hydra may only be set on the command"),
    "folder": ("hydra: {run: {dir: PWNED}}", "hydra may only be set on the command"),
    "secret": ("name: '${oc.env:SECRET}'", "${oc.env:SECRET}"),
    "nested_secret": ("name: '${oc.env:${name}}'", "may not be read"),
    "code": ("plugins: [pwned]", "plugins=[pwned]"),
    "code_of_a_folder": ("plugins: [pwned_folder.inner]", "plugins=[pwned_folder.inner]"),
    "program": ("plugins: [pytest.__main__]", "plugins=[pytest.__main__]"),
    "pipe_of_an_arm": (
        """arms: {a: ["data.urls=['pipe:touch PWNED']"]}""", "a program may only be named on the command line"),
    "code_of_an_arm": ("arms: {a: ['plugins=[pwned]']}", "plugins may only be set on the command line"),
    "code_of_an_evaluation": ("evaluations: [['plugins=[pwned]']]", "plugins may only be set on the command line"),
    "folder_of_an_evaluation": ("evaluations: [['out=PWNED']]", "out may only be set on the command line"),
    "logging_of_an_arm": (
        "arms: {a: ['+hydra.job_logging.handlers.h={class: logging.FileHandler, filename: PWNED}']}",
        "hydra.job_logging.handlers.h may only be set"),
    "launcher": ("defaults: [demo, {override /hydra/launcher: submitit_slurm}]", "must be a list of recipes"),
    "jobs_of_an_arm": (
        "arms: {a: ['launch.slurm=--wrap=\"touch PWNED\"']}", "launch.slurm may only be set on the command line"),
    "notify": ("log: {notify: 'touch PWNED'}", "log.notify=touch PWNED starts a program"),
    "notify_of_an_arm": ("arms: {a: ['log.notify=touch PWNED']}", "log.notify may only be set on the command line"),
    "sets": ("sets: PWNED", "sets may only be set on the command line"),
    "runs": ("runs: PWNED", "runs may only be set on the command line"),
    "server": ("launch: {nodes: 2, rendezvous: 'example.org:29500'}", "launch may only be set on the command line"),
    "rendered": ("data: {root: PWNED}", "only rendered into a folder of the command line"),
    "base_60": ("train: {batch_size: 1:30}", "base 8 or 60"),
    "base_8": ("train: {samples: 0777}", "base 8 or 60"),
    "seeds": ("seeds: true", "seeds=True must be a whole number; allowed: 1..1000"),
    "many_seeds": ("seeds: 100000000", "is out of range; allowed: 1..1000"),
    "bomb": ("a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "\n".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 8)}]" for i in range(12)), "values, aliases"),
    "deep": ("a: " + "[" * 20_000 + "]" * 20_000, "nest"),  # new versions of libyaml have a limit of their own
    "itself": ("name: '${name}'", "Recursive interpolation"),
    "huge_image": ("model: {image: {size: 1000000000}}", "model.image.size=1000000000 is out of range"),
    "environment": (
        "data: {source: csv, root: /proc/self, annotations: environ, cache: none, evaluation: []}",
        "/proc/self/environ belongs to the system",
    ),
    "long_number": (f"seed: {'9' * 400}", "400 digits"),
}  # fmt: skip


@pytest.mark.parametrize("kind", RECIPES)
def test_a_recipe_of_somebody_else_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("SECRET", "my-token")
    (tmp_path / "pwned.py").write_text("open('PWNED', 'w')\nTERMS = {}\n")
    (tmp_path / "pwned_folder").mkdir()
    (tmp_path / "pwned_folder" / "inner.py").write_text("open('PWNED', 'w')\nTERMS = {}\n")
    text, named = RECIPES[kind]
    streamed = "webdataset" in text
    evaluation = "" if not streamed else text.replace("data: {", "data: {cache: none, evaluation: [], ")
    defaults = "" if "defaults" in text else "defaults: [demo]\n"
    (tmp_path / "r.yaml").write_text(f"{defaults}{evaluation or text}\n")
    started = time.monotonic()
    done = clipx_here("check", "recipe=r", f"--config-dir={tmp_path}", SMALL, cwd=tmp_path, code=2)
    assert time.monotonic() - started < 20  # a bomb would take minutes and gigabytes
    assert len(done.stderr.splitlines()) == 1
    assert named in done.stderr
    assert "my-token" not in done.stderr
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("command", [["train", "--cfg", "job"], ["reproduce", "dry=true"]])
def test_a_command_that_only_prints_imports_no_code_of_a_recipe(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "pwned.py").write_text("open('PWNED', 'w')\nTERMS = {}\n")
    (tmp_path / "r.yaml").write_text("defaults: [demo]\nplugins: [pwned]\n")
    clipx_here(*command, "recipe=r", f"--config-dir={tmp_path}", cwd=tmp_path, code=2)
    assert not (tmp_path / "PWNED").exists()


SCHEMES = {  # URL in a recipe -> what the line says; None: read, by curl without the user's keys
    "pipe:touch PWNED": "starts a program",
    "PIPE:touch PWNED": "starts a program",
    " pipe:touch PWNED": "starts a program",
    "gs://bucket/{0..1}.tar": "starts a program",  # gsutil
    "g\ns://bucket/0.tar": "starts a program",
    "htgs://bucket/0.tar": "starts a program",  # curl
    "ais://bucket/0.tar": "starts a program",
    "scp://host/0.tar": "starts a program",  # curl, with the user's keys
    "sftp://host/0.tar": "starts a program",
    "ftps://host/0.tar": "starts a program",
    "a.tar::gs://bucket/0.tar": "starts a program",
    "ssh://host/0.tar": "ssh: cannot be read",
    "hdfs://host/0.tar": "hdfs: cannot be read",
    "s3://bucket/0.tar": "s3: cannot be read",
    "ftp://host/0.tar": "ftp: cannot be read",
    "http://[x/0.tar": "is not a URL",
    "{0..99999999999}.tar": "shards",
    "{a,b}" * 40: "shards",
    "{a..z}" * 9: "shards",
    "{0..1": "cannot be expanded",
    "http://host/0.tar": None,
    "https://host/0.tar": None,
    "hf://datasets/user/name/0.tar": None,
}


@pytest.mark.parametrize("url", SCHEMES)
def test_a_file_names_no_url_whose_reader_is_a_program_with_the_keys_of_the_user(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    opened = list[str]()
    opener = import_module("webdataset.gopen")  # the package has a function of this name

    def start(*command: Any, **_: Any) -> None:
        opened.append(str(command))
        raise OSError

    monkeypatch.setattr(opener, "Popen", start)
    monkeypatch.setattr("huggingface_hub.HfFileSystem", start)
    monkeypatch.setattr("clipx.data.sources.streams.time.sleep", lambda seconds: None)
    monkeypatch.setattr("socket.socket.connect", None)  # a call would fail
    monkeypatch.delenv(PERMITTED, raising=False)
    config = DataConfig(source="webdataset", num_samples=128, urls=[url])
    if named := SCHEMES[url]:
        with pytest.raises(UserError, match=named):
            Stream(config)
    else:
        assert "cannot be read" in next(Stream(config).pairs(Random(0))).error
    assert bool(opened) == (named is None)


def test_a_url_that_the_user_typed_is_read_by_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PERMITTED, raising=False)
    permit("programs", ["gs://bucket/{0..1}.tar"])
    stream = Stream(DataConfig(source="webdataset", num_samples=128, urls=["gs://bucket/{0..1}.tar"]))
    assert stream.shards == [["gs://bucket/0.tar", "gs://bucket/1.tar"]]


def test_an_arm_names_no_url_whose_reader_is_a_program(tmp_path: Path) -> None:
    for url in (url for url, named in SCHEMES.items() if named == "starts a program" and "::" not in url):
        (tmp_path / "r.yaml").write_text(f"""arms: {json.dumps({"a": [f"data.urls=['{url}']"]})}\n""")
        with pytest.raises(UserError, match="a program may only be named on the command line"):
            load_recipe(tmp_path / "r.yaml")


@pytest.mark.parametrize(
    "override",
    [
        r"data.urls=[pipe\:touch\ PWNED]",  # Hydra removes the backslashes
        'data.urls=["x::{pip,pip}e:touch PWNED"]',  # webdataset expands the braces
        "data.root=new",  # scenes would be rendered into it
    ],
)
def test_an_arm_permits_nothing_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str) -> None:
    monkeypatch.setenv(PERMITTED, "{}")
    monkeypatch.chdir(tmp_path)
    urls = "data: {source: webdataset, num_samples: 128, cache: none, max_bad_rate: 0.9, evaluation: []}\n"
    (tmp_path / "r.yaml").write_text(
        f"defaults: [demo]\n{urls if 'urls' in override else ''}arms: {json.dumps({'a': [override]})}\n"
    )
    done = clipx_here("check", "recipe=r", "arm=a", f"--config-dir={tmp_path}", SMALL, cwd=tmp_path, code=2)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not (tmp_path / "PWNED").exists() and not (tmp_path / "new").exists()


def test_a_program_on_the_command_line_is_started(tmp_path: Path, shards: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "defaults: [demo]\ndata: {source: webdataset, num_samples: 128, cache: none, evaluation: []}"
    )
    urls = f"data.urls=['pipe:touch STARTED; cat {shards}/train/00000.tar']"
    clipx_here("check", "recipe=r", f"--config-dir={tmp_path}", SMALL, urls, cwd=tmp_path)
    assert (tmp_path / "STARTED").exists()


def test_a_command_in_a_run_of_somebody_else_is_not_run(
    copied_run: tuple[RunConfig, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, run = copied_run
    monkeypatch.setenv(PERMITTED, "{}")
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("notify: null", f"notify: touch {tmp_path}/PWNED"))
    config = RunFolder(run).load_config()
    for typed in (False, True):
        if typed:
            permit("programs", [config.log.notify or ""])
        RunLog(config, run, 4, 4).notify("diverged")
        assert (tmp_path / "PWNED").exists() == typed


def test_a_run_of_somebody_else_imports_no_module_of_this_folder(
    copied_run: tuple[RunConfig, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, run = copied_run
    monkeypatch.chdir(run)
    (run / "pwned.py").write_text("open('PWNED', 'w')\nTERMS = {}\n")
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("plugins: []", "plugins: [pwned]"))
    for command in (("eval", "."), ("export", ".", "out=out.safetensors")):
        done = clipx_here(*command, cwd=run, code=2)
        assert "add plugins=[pwned] to the command" in done.stderr
    assert not (run / "PWNED").exists()


def test_the_settings_of_a_run_are_plain_values(copied_run: tuple[RunConfig, Path]) -> None:
    _, run = copied_run
    text = (run / "config.yaml").read_text()
    for value in ("'${oc.env:HOME}'", "'${name}'"):
        (run / "config.yaml").write_text(text.replace("recipe: test", f"recipe: {value}"))
        with pytest.raises(UserError, match=r"config\.yaml .*plain values"):
            RunFolder(run).config  # noqa: B018
    (run / "config.yaml").write_text(text.replace("recipe: test", 'recipe: "\\e[2Jx"'))
    with pytest.raises(UserError, match="recipe has control characters"):
        RunFolder(run).config  # noqa: B018


@pytest.mark.parametrize("name", ["artifacts", "log.jsonl", "checkpoints/best", "wandb"])
def test_a_link_leads_no_write_out_of_a_run(
    copied_run: tuple[RunConfig, Path], tmp_path: Path, shards: Path, name: str
) -> None:
    config, run = copied_run
    (tmp_path / "elsewhere").mkdir()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "elsewhere" / ("new" if name == "log.jsonl" else ""))
    data = f"datasets=[captions:{shards}/train]"
    for command in (("eval", str(run), data, "workers=0"), ("report", str(run))):
        assert "is a link that leads out of the run" in clipx_here(*command, cwd=tmp_path, code=2).stderr
    with pytest.raises(UserError, match="is a link that leads out of the run"):
        train(config)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_link_of_wandb_to_its_own_log_does_not_lock_the_run(copied_run: tuple[RunConfig, Path]) -> None:
    config, run = copied_run
    logs = run / "wandb/offline-run-1/logs"
    logs.mkdir(parents=True)
    (logs / "debug-core.log").symlink_to("/somewhere/.cache/wandb/logs/core-debug.log")
    assert RunFolder(run).load_config() == config
    RunFolder.create(config)


@pytest.mark.parametrize("name", ["log.jsonl", "artifacts/x.json"])
def test_a_pipe_or_a_device_in_a_run_is_not_read(copied_run: tuple[RunConfig, Path], tmp_path: Path, name: str) -> None:
    _, run = copied_run
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    assert "is neither a file nor a folder" in clipx_here("report", str(run), cwd=tmp_path, code=2).stderr
    (run / name).unlink()
    (run / name).symlink_to("/dev/zero")
    assert "is a link that leads out" in clipx_here("report", str(run), cwd=tmp_path, code=2).stderr


def test_a_link_of_a_report_is_not_followed(copied_run: tuple[RunConfig, Path], tmp_path: Path) -> None:
    _, run = copied_run
    (tmp_path / "elsewhere").mkdir()
    (run.parent / "report_files").symlink_to(tmp_path / "elsewhere")
    assert "report_files is a link" in clipx_here("report", str(run.parent), cwd=tmp_path, code=2).stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("step", ['"5"', "-3", "1e999"])
def test_a_step_that_is_no_number_of_steps_is_a_corrupt_manifest(copied_run: tuple[RunConfig, Path], step: str) -> None:
    _, run = copied_run
    manifest = checkpoints(run)[-1] / "checkpoint.json"
    manifest.write_text(manifest.read_text().replace('"step": 4', f'"step": {step}'))
    with pytest.raises(UserError, match=r"checkpoint\.json cannot be read"):
        read_manifest(manifest.parent)


@pytest.mark.parametrize("owner", ["[1, 2]", "[" * 20_000 + "]" * 20_000, '{"pid": 1, "host": "\\u001b[2J"}'])
def test_an_odd_owner_of_a_lock_is_another_process(
    copied_run: tuple[RunConfig, Path], capsys: pytest.CaptureFixture[str], owner: str
) -> None:
    config, run = copied_run
    (run / "train.lock.owner").write_text(owner)
    train(config)
    assert "\x1b" not in capsys.readouterr().err


def test_a_key_of_a_run_stands_once() -> None:
    with pytest.raises(ValueError, match="the key seed stands twice"):
        load_yaml("seed: 0\nname: a\nseed: 7\n")
    assert load_yaml("a: {seed: 0}\nb: {seed: 1}\n") == {"a": {"seed": 0}, "b": {"seed": 1}}


def test_weights_of_integers_are_refused(copied_run: tuple[RunConfig, Path]) -> None:
    _, run = copied_run
    from clipx.models import clip

    file = checkpoints(run)[-1] / WEIGHTS
    weights = {name: tensor.to(torch.int32) for name, tensor in load_file(file).items()}
    save_file(weights, file)
    with pytest.raises(UserError, match=r"is torch\.int32 there, torch\.float32 in this run"):
        load_weights(clip.build_model(RunFolder(run).config, pretrained=False), file.parent)


def test_json_with_a_very_long_number_is_refused() -> None:
    with pytest.raises(ValueError, match="400 digits"):
        load_json(f'{{"a": {"9" * 400}}}')


@pytest.mark.parametrize("number", ["-" + "9" * 400, "0x" + "f" * 5000, "0b" + "1" * 400, "9_" * 200])
def test_yaml_with_a_very_long_number_is_refused(number: str) -> None:
    """Python cannot print a hexadecimal number of 5,000 digits, so the error about the setting would fail."""
    with pytest.raises(ValueError, match=f"an integer of {len(number)} digits"):
        load_yaml(f"seed: {number}")


def test_references_of_yaml_are_read_as_long_as_they_are_few() -> None:
    assert load_yaml("a: &a {x: [1, 2]}\nb: *a\nc: &c 3\nd: *c\n") == {
        "a": {"x": [1, 2]},
        "b": {"x": [1, 2]},
        "c": 3,
        "d": 3,
    }


def test_a_run_whose_checkpoints_are_gone_is_refused_and_keeps_its_log(copied_run: tuple[RunConfig, Path]) -> None:
    config, run = copied_run
    config.train.save_every = 1
    before = (RunFolder.create(config).path / "log.jsonl").read_text()
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(UserError, match=r"was trained to step 4, but its checkpoints are gone: restore them"):
        train(config)
    assert (run / "log.jsonl").read_text() == before


@pytest.mark.parametrize("save_every", [2, 1])  # of four steps: the checkpoint of step 2 was still being written
def test_a_run_killed_before_its_first_checkpoint_is_complete_starts_again_and_keeps_its_log(
    copied_run: tuple[RunConfig, Path], save_every: int
) -> None:
    """Also if it now saves more often, as a user does after such a loss."""
    config, run = copied_run
    config.train.save_every = 2
    before = (RunFolder.create(config).path / "log.jsonl").read_text()
    config.train.save_every = save_every
    shutil.rmtree(run / "checkpoints")
    train(config)
    assert (run / "log.earlier.jsonl").read_text() == before
