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


def test_assets_from_the_network_are_found_and_links_and_local_assets_are_not(hooks: ModuleType) -> None:
    external = [
        '<script src="https://unpkg.com/shim"></script>',
        "<script async src=//cdn.example.org/a.js></script>",
        '<link href="https://fonts.gstatic.com" rel="preconnect" crossorigin>',
        '<img alt="badge" src="https://img.shields.io/badge.svg">',
        '@import "https://example.org/a.css";',
        "a { background: url(https://example.org/a.png) }",
    ]
    allowed = [
        '<a href="https://arxiv.org/abs/2310.00927">2310.00927</a>',
        '<script src="assets/javascripts/bundle.js"></script>',
        '<link rel="next" href="https://example.org/objectives.html">',
        '<link rel="icon" href="../assets/favicon.png"><a href="https://arxiv.org">paper</a>',
        "a { background: url('data:image/svg+xml;charset=utf-8,<svg xmlns=\"http://www.w3.org/2000/svg\"/>') }",
    ]
    assert [text for text in external + allowed if hooks.EXTERNAL.search(text)] == external


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


def test_docstrings_are_shown_as_written(hooks: ModuleType) -> None:
    text = "Run [a=1] [b=2] in runs/<name>, `[a] [b]`, x < y.\n\n    z[i] [j] <g, h>\n\nArgs:\n    a: see <name>"
    expected = (
        "Run [a=1] \\[b=2] in runs/&lt;name>, `[a] [b]`, x < y.\n\n    z[i] [j] <g, h>\n\nArgs:\n    a: see &lt;name>"
    )
    assert hooks.escape(text) == expected


def test_links_of_the_readme_resolve_in_the_site(hooks: ModuleType) -> None:
    text = "[a](docs/claims.md#effect) [b](CONTRIBUTING.md) [c](CITATION.cff) ![d](docs/images/report.png)"
    expected = "[a](claims.md#effect) [b](contributing.md) [c](CITATION.cff) ![d](images/report.png)"
    assert hooks.links_from_docs(text) == expected
