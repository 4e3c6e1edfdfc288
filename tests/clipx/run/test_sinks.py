"""check_wandb finds an API key in the same places as wandb."""

import re
from pathlib import Path

import pytest

from clipx.errors import UserError
from clipx.run.log_writers import check_wandb


@pytest.fixture(autouse=True)
def no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_CONFIG_DIR", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)


def refused(value: str) -> str:
    """Return the message for log.wandb=VALUE, or "" if it is accepted."""
    try:
        check_wandb("log.wandb", value)
    except UserError as error:
        return str(error)
    return ""


def test_without_a_key_only_online_is_refused() -> None:
    assert refused("off") == refused("offline") == ""
    assert re.match(r"log\.wandb=online needs an API key of W&B, .* set WANDB_API_KEY; or write off", refused("online"))


def test_a_key_in_the_environment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    assert refused("online") == ""


@pytest.mark.parametrize(("host", "found"), [("api.wandb.ai", True), ("github.com", False)])
def test_a_key_of_wandb_login_is_found_only_for_the_host_of_wandb(tmp_path: Path, host: str, found: bool) -> None:
    (tmp_path / ".netrc").write_text(f"machine {host}\n  login user\n  password {'x' * 40}\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert ("needs an API key" in refused("online")) is not found


def test_a_key_for_another_server_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password x\n")
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.my-lab.org:8080")
    assert "needs an API key" in refused("online")


def test_with_a_settings_file_of_wandb_no_key_is_required(tmp_path: Path) -> None:
    (tmp_path / ".config/wandb").mkdir(parents=True)
    (tmp_path / ".config/wandb/settings").write_text("[default]\nbase_url = https://wandb.my-lab.org\n")
    assert refused("online") == ""
