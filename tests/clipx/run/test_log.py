"""Run log: no lost or repeated lines after a resume, valid JSON; one W&B run per run directory, with its API key."""

import errno
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.run.folder import WANDB_ID
from clipx.run.log import RunLog
from clipx.run.log_writers import check_wandb
from tests.helpers.folder import settings
from tests.helpers.runs import log

ROW = {"loss": 0.5, "terms": {"clip": 0.5}, "columns": {"u": [1.0]}, "gone": None, "text": "x"}


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """Replace wandb.init; it records its calls, and those of the run that it returns."""
    fake = MagicMock()
    monkeypatch.setattr("wandb.init", fake)
    return fake


def write_rows(config: RunConfig, run: Path, step: int, rows: list[int]) -> None:
    run.mkdir(exist_ok=True)
    with RunLog(config, run, step, 10) as run_log:
        for at in rows:
            run_log.record(at, ROW)


def test_the_wandb_id_is_kept_on_resume_and_differs_between_directories(tmp_path: Path, init: MagicMock) -> None:
    config = settings(tmp_path)
    config.log.wandb, config.recipe, config.arm = "offline", "demo", "clip"
    write_rows(config, tmp_path / "a", 0, [1, 2, 3])
    write_rows(config, tmp_path / "a", 1, [2, 3])
    write_rows(config, tmp_path / "b", 0, [])
    config.log.wandb = "off"
    write_rows(config, tmp_path / "c", 0, [1])
    assert not (tmp_path / "c" / WANDB_ID).exists()
    given = [call.kwargs for call in init.call_args_list]
    first, again, other = (settings["id"] for settings in given)
    assert first == again == (tmp_path / "a" / WANDB_ID).read_text()
    assert other != first
    assert {(s["resume"], s["mode"], s["name"]) for s in given} == {("allow", "offline", "test-s0")}
    assert given[0]["group"] == "test" and given[0]["tags"] == ["demo", "clip"]


def test_repeated_steps_are_not_dropped_by_wandb(tmp_path: Path, init: MagicMock) -> None:
    """W&B drops rows whose step= is below the last one, so the step is logged as a metric."""
    config = settings(tmp_path)
    config.log.wandb = "online"
    write_rows(config, tmp_path / "a", 0, [1, 2])
    write_rows(config, tmp_path / "a", 1, [2])
    logged = [call.args[0] for call in init().log.call_args_list]
    assert [row["step"] for row in logged] == [1, 2, 2]
    assert logged[0] == {"step": 1, **ROW}
    init().define_metric.assert_any_call("*", step_metric="step")
    assert init.call_args_list[0].kwargs["mode"] == "online"
    assert [row["step"] for row in log(tmp_path / "a")] == [1, 2]


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    row = {"loss": float("nan"), "terms": {"clip": float("inf")}, "columns": {"u": [1.5, -float("inf")]}, "bad": 0}
    with RunLog(settings(tmp_path), tmp_path, 0, 1) as run_log:
        run_log.record(1, row)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not valid JSON")

    found = json.loads((tmp_path / "log.jsonl").read_text(), parse_constant=refuse)
    del found["time"]
    assert found == {"step": 1, "loss": None, "terms": {"clip": None}, "columns": {"u": [1.5, None]}, "bad": 0}


def test_a_refusal_by_wandb_gives_a_message_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb as package

    def refuse(**options: Any) -> None:
        raise package.errors.UsageError("api_key not configured (no-tty).\n  call wandb.login(key=[your_api_key])\n")

    monkeypatch.setattr("wandb.init", refuse)
    config = settings(tmp_path)
    config.log.wandb = "online"
    with pytest.raises(
        UserError, match=r"^log.wandb=online: W&B did not start \(api_key not configured \(no-tty\)\.\)"
    ) as raised:
        write_rows(config, tmp_path / "a", 0, [1])
    assert "wandb login" in str(raised.value) and "\n" not in str(raised.value)


def test_tensorboard_has_all_numbers_alone_and_no_old_values_of_repeated_steps(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = settings(tmp_path)
    config.log.tensorboard = True
    write_rows(config, tmp_path / "a", 0, [1, 2, 3])
    write_rows(config, tmp_path / "a", 1, [2])
    events = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "terms/clip"}
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 0.5), (2, 0.5)]
    write_rows(config, tmp_path / "a", 0, [1])  # killed before its first checkpoint
    events = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1]


def test_tensorboard_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    config = settings(tmp_path)
    config.log.tensorboard = True
    with pytest.raises(UserError, match=r"needs the extra `tensorboard`: pip install -e '\.\[tensorboard\]'"):
        write_rows(config, tmp_path / "a", 0, [])


@pytest.fixture(autouse=True)
def no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_CONFIG_DIR", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)


NETRC = "machine {} login user password x"
SETTINGS = "[default]\nbase_url = https://wandb.my-lab.org\n"
KEYS: list[tuple[str, dict[str, str], bool]] = [  # mode; variable or file -> content; whether this is enough
    ("offline", {}, True),
    ("online", {}, False),
    ("online", {"WANDB_API_KEY": "x" * 40}, True),
    ("online", {".netrc": NETRC.format("api.wandb.ai")}, True),
    ("online", {".netrc": NETRC.format("github.com")}, False),
    ("online", {".netrc": NETRC.format("api.wandb.ai"), "WANDB_BASE_URL": "https://wandb.my-lab.org:8080"}, False),
    ("online", {".config/wandb/settings": SETTINGS}, True),
]


@pytest.mark.parametrize(("mode", "given", "enough"), KEYS)
def test_a_key_is_found_where_wandb_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, given: dict[str, str], enough: bool
) -> None:
    for place, content in given.items():
        if place.startswith("WANDB"):
            monkeypatch.setenv(place, content)
        else:
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place).write_text(content)
            (tmp_path / place).chmod(0o600)
    refused = pytest.raises(UserError, match=r"log\.wandb=online needs an API key .* set WANDB_API_KEY; or write")
    with nullcontext() if enough else refused:
        check_wandb("log.wandb", mode)


def test_a_full_disk_while_logging_names_the_file(tmp_path: Path) -> None:
    run_log = RunLog(settings(tmp_path), tmp_path, 0, 10)
    (tmp_path / "log.jsonl").symlink_to("/dev/full")  # every write fails: no space left
    with pytest.raises(OSError, match=r"No space left on device: .*log\.jsonl") as caught:
        run_log.record(1, {"loss": 2.0})
    assert caught.value.errno == errno.ENOSPC


def test_a_log_with_broken_bytes_is_continued(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"step": 1}\n{"step": 2, "a": "\xff')
    write_rows(settings(tmp_path), tmp_path, 1, [])
    assert (tmp_path / "log.jsonl").read_text() == '{"step": 1}\n'
