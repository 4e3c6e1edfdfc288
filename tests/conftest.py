"""Order and processes of a test run; `tests/helpers/fixtures.py` has the fixtures."""

import gc
import os
import signal
from functools import cache
from typing import Any

import hypothesis
import pytest

# As in cli.main, set before torch is imported: threads that wait must not spin while worker processes compute.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# no test depends on the speed of the machine
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_configure() -> None:
    """Handle signals that `pytest &` in a shell script and nohup ignore: commands under test would inherit this."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Load the fixtures, which import torch for ten seconds, except in a process that only starts workers."""
    if not session.config.pluginmanager.hasplugin("dsession"):
        gc.disable()  # imports leave nothing to collect
        session.config.pluginmanager.import_plugin("tests.helpers.fixtures")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first, so that all cores finish at about the same time."""
    items.sort(key=lambda item: not any(item.get_closest_marker(name) for name in ("slow", "long")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file on one worker if they share what is made once, and all files with `gloo` on one.

    pytest 9.2 ignores the groups of pytest-xdist 3.8.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    @cache
    def scope(file: str) -> str:
        text = (config.rootpath / file).read_text()
        return "gloo" if "gloo: Gloo" in text else file if 'scope="module"' in text or "@cache" in text else ""

    class ByWhatIsShared(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid.partition("::")[0]) or nodeid

    return ByWhatIsShared(config, log)


def pytest_collection_finish() -> None:
    """Let the garbage collector leave out imported modules and run less often: it takes a tenth of the time else."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # new objects; by default 700
