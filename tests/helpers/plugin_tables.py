"""Restore the tables that plug-ins extend, after a test that loads plug-ins."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches

from clipx.utils import plugins


@contextmanager
def restored() -> Iterator[None]:
    """On exit, restore the tables, the list of loaded plug-ins and sys.path; forget modules of temporary folders."""
    locations = {name: table.location.rpartition(".") for name, table in plugins.TABLES.items()}
    tables = {table: getattr(import_module(module), name) for table, (module, _, name) in locations.items()}
    before = {table: dict(rows) for table, rows in tables.items()}
    loaded, modules, path = dict(plugins._loaded), set(sys.modules), list(sys.path)
    invalidate_caches()
    try:
        yield
    finally:
        for table, rows in tables.items():
            rows.clear()
            rows.update(before[table])
        plugins._loaded.clear()
        plugins._loaded.update(loaded)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if not name.startswith(("clipx", "evaluation", "cli")) and _is_of_test(name):
                del sys.modules[name]


def _is_of_test(name: str) -> bool:
    """Return True if the module's file is in a temporary folder of pytest."""
    return "/pytest-" in str(getattr(sys.modules[name], "__file__", ""))
