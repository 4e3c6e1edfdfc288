"""A plug-in package outside the repository: train, eval and export use it; if it is missing, the error names it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clipx.utils.trust import PERMITTED
from tests.helpers import fakes
from tests.helpers.commands import clipx, clipx_here
from tests.helpers.folder import jpeg
from tests.helpers.own_package import NAME, PACKAGE, write_package
from tests.helpers.runs import lines, log

Command = Callable[..., "subprocess.CompletedProcess[str]"]
# loads an export in a process that cannot import clipx
OPEN_CLIP = """
import sys
sys.modules.update(clipx=None, evaluation=None, cli=None)
import open_clip, torch
if {tower}:
    import {package}.towers
open_clip.add_model_config("own.json")
model = open_clip.create_model("own", pretrained="own.safetensors")
print(model.encode_image(torch.zeros(1, 3, 48, 48)).shape[1], float(model.logit_bias.detach()) < -4)
"""


@pytest.mark.long
def test_a_run_with_a_plugin_trains_on_two_processes_resumes_and_is_evaluated_ranked_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2]}:{write_package(tmp_path / 'package')}")
    zoo, work = tmp_path / "zoo", tmp_path / "work"
    work.mkdir()
    for number, name in enumerate(("okapi", "zebra") * 8):
        (zoo / name).mkdir(parents=True, exist_ok=True)
        (zoo / name / f"{number}.jpg").write_bytes(jpeg("red", 48 + number))
    captions = fakes.captioned(tmp_path / "captions" / "test")

    def run(*arguments: str, code: int = 0, command: Command = clipx) -> subprocess.CompletedProcess[str]:
        return command(*arguments, cwd=work, code=code)

    plan = [f"plugins=[{NAME}]", "recipe=okapi", f"data.root={zoo}", "data.workers=1", "train.device=cpu"]
    counted = ["train", *plan, "arm=counted", "mixing.kind=whole", "mixing.probability=1", "name=own"]
    run(*counted, "train.processes=2", "train.max_minutes=0.0001", code=75)
    resumed = run(*counted, "train.processes=2")
    assert "resumed" in resumed.stderr
    last = log(work / "runs/own/s0")[-1]
    assert last["step"] == 4 and "counted" in str(last)
    run("train", *plan, "arm=clip", "name=other")

    typed = f"plugins=[{NAME}]"  # a module on PYTHONPATH does not load because config.yaml names it
    for name in ("own", "other"):
        several = "processes=2" if name == "own" else "processes=1"
        run("eval", f"checkpoint=runs/{name}/s0", f"datasets=[{captions}]", several, "device=cpu", "workers=0", typed)
        rows = lines(work / f"runs/{name}/s0/results.jsonl")
        assert {row["metric"] for row in rows if row["task"] == "first_places"} == {"share"}
    ranked = run("report", "compare", "runs", command=clipx_here).stdout
    assert "own" in ranked and "other" in ranked
    ranked = run("report", "compare", "runs", "by=first_places", command=clipx_here).stdout
    assert "first of 2 by first_places" in ranked
    run("report", "runs", command=clipx_here)
    assert "first_places" in (work / "runs" / "report.md").read_text()

    run("train", *plan, "arm=clip", "name=flat", "model.image.name=flat:x", "model.embed_dim=128")
    flat = run("export", "runs/flat/s0", "out=flat.pt", typed, code=2).stderr
    assert "model.image.name=flat:x cannot be exported" in flat and "out=FILE.safetensors exports" in flat
    assert flat.count("\n") == 1

    exported = run("export", "runs/own/s0", "out=own.safetensors", typed)
    assert f"import {PACKAGE}.towers  # defines its image tower" in exported.stdout
    for tower, code in ((True, 0), (False, 1)):
        script = OPEN_CLIP.format(tower=tower, package=PACKAGE)
        loaded = subprocess.run([sys.executable, "-c", script], cwd=work, capture_output=True, text=True)
        assert loaded.returncode == code, loaded.stderr
        assert (loaded.stdout.strip() == "128 True") is tower

    unused = (["eval", "checkpoint=runs/own/s0"], ["export", "runs/own/s0", "out=x.pt"])
    for arguments in unused:
        refused = run(*arguments, code=2).stderr
        assert refused.count("\n") == 1 and f"runs/own/s0/config.yaml: {typed} stands in a file" in refused
    monkeypatch.setenv(PERMITTED, "{}")  # what is typed below stays in the environment of this process
    for arguments in unused:  # this process (clipx_here) cannot import the package
        gone = run(*arguments, typed, code=2, command=clipx_here).stderr
        assert gone.count("\n") == 1 and f"plugins={NAME}: there is no module {PACKAGE}; install it" in gone
    run("report", "runs", command=clipx_here)  # needs no plug-in, because it reads only the result rows
