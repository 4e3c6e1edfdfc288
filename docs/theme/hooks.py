"""mkdocs hooks: README as home page, notebooks and public modules as pages, no assets from the network."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PACKAGES = ("clipx", "evaluation", "cli")
COPIES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "CITATION.cff": "CITATION.cff",
}
SECTIONS = ("Args:", "Attributes:", "Example:", "Examples:", "Raises:", "Returns:", "Yields:")
# elements that a browser fetches when it opens a page, with a URL that leaves the site
EXTERNAL = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*\b(?:src|srcset|data)=[\"']?\s*(?:https?:)?//[^\"'>\s]+"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect|dns-prefetch|modulepreload|prefetch|manifest))"
    r"[^>]*\bhref=[\"']?\s*(?:https?:)?//[^\"'>\s]+"
    r"|url\(\s*[\"']?(?:https?:)?//[^)]+\)|@import\s+[\"'](?:https?:)?//[^\"']+",
    re.IGNORECASE,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the API pages to the navigation."""
    assert config.nav is not None
    config.nav = [*config.nav, {"API": [{package: navigation(ROOT / package)} for package in PACKAGES]}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root, of the notebooks, and a page per public module."""
    for source, target in COPIES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=links_from_docs(text)))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if is_public(path):
                name = module(path)
                page = f"---\ntitle: {name.rsplit('.', 1)[-1]}\nsearch:\n  boost: 0.5\n---\n\n::: {name}\n"
                files.append(File.generated(config, api_page(path), content=page))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that loads anything from the network.

    Raises:
        PluginError: names the pages and the URLs.
    """
    found = []
    for path in sorted(Path(config.site_dir).rglob("*")):
        if path.suffix in (".html", ".css"):
            found += [f"{path}: {match[0]}" for match in EXTERNAL.finditer(path.read_text(encoding="utf-8"))]
    if found:
        raise PluginError("pages load external assets:\n" + "\n".join(found[:20]))


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown: texts, code, and the outputs that its file stores."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f'<img alt="figure" src="data:image/png;base64,{data["image/png"].strip()}">')
            elif "text/html" in data:
                parts.append("".join(data["text/html"]))
            else:
                parts.append(f"```\n{''.join(output.get('text', [])).rstrip()}\n```")
    return "\n\n".join(parts)


def navigation(folder: Path) -> list[Any]:
    """Return the navigation of a package: modules first, then packages."""
    modules = [path for path in sorted(folder.glob("*.py")) if is_public(path)]
    pages: list[Any] = [{module(path).rsplit(".", 1)[-1]: api_page(path)} for path in modules]
    for child in sorted(folder.iterdir()):
        if child.is_dir() and (below := navigation(child)):
            pages.append({child.name: below})
    return pages


def is_public(path: Path) -> bool:
    """Return True for a module with a public name that defines something itself."""
    names = path.relative_to(ROOT).with_suffix("").parts
    if any(name.startswith("_") and name != "__init__" for name in names):
        return False
    if path.stem != "__init__":
        return True
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_") for node in body)


def module(path: Path) -> str:
    """Return the dotted name of a source file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def api_page(path: Path) -> str:
    """Return the place of a module's page in the site."""
    return f"api/{module(path)}.md"


class PlainText(griffe.Extension):
    """Escape docstrings: `[seeds=N] [jobs=N]` is no Markdown link, `<name>` no HTML."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Edit the docstring before griffe parses it."""
        if obj.docstring:
            obj.docstring.value = escape(obj.docstring.value)


def escape(docstring: str) -> str:
    """Escape brackets outside of code spans and indented formulas."""
    lines, is_section = [], False
    for line in docstring.splitlines():
        if line and not line.startswith(" "):
            is_section = line.rstrip() in SECTIONS
        if is_section or not line.startswith("    "):
            spans = line.split("`")
            spans[::2] = [re.sub(r"\](\s*)\[", r"]\1\[", span) for span in spans[::2]]
            spans[::2] = [re.sub(r"<(?=[A-Za-z/])", "&lt;", span) for span in spans[::2]]
            line = "`".join(spans)
        lines.append(line)
    return "\n".join(lines)


def links_from_docs(text: str) -> str:
    """Rewrite links of a page in the repository's root so that they start in docs/."""
    text = re.sub(r"\]\(docs/", "](", text)
    for source, target in COPIES.items():
        text = re.sub(rf"\]\({re.escape(source)}(?=[)#])", f"]({target}", text)
    return text
