"""The documentation site (`make docs`) loads no assets from the network and has one page per module."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("griffe")
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "theme" / "hooks.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_site_with_external_assets_is_refused(hooks: ModuleType, tmp_path: Path) -> None:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.exceptions import PluginError

    config = MkDocsConfig()
    config.site_dir = str(tmp_path)
    (tmp_path / "index.html").write_text('<script src="local.js"></script>')
    hooks.on_post_build(config)
    (tmp_path / "index.html").write_text('<script src="https://unpkg.com/shim"></script>')
    with pytest.raises(PluginError, match=r"index\.html: <script src=.https://unpkg\.com/shim"):
        hooks.on_post_build(config)


def test_every_module_has_exactly_one_page(hooks: ModuleType) -> None:
    pages = re.findall(r"api/([\w.]+)\.md", str([hooks.navigation(ROOT / package) for package in hooks.PACKAGES]))
    modules = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for package in ("clipx", "evaluation", "cli")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert modules and modules <= set(pages)
    assert len(pages) == len(set(pages))
