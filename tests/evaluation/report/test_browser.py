"""The page in a browser: it fits the width, tables can be sorted and copied as LaTeX, Markdown and CSV, curves hidden.

axe-core, if it is installed, finds no violation.
"""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from evaluation.report import blocks
from evaluation.report.sections.papers import density_plot
from evaluation.report.writer import write_report
from evaluation.runs import reader
from evaluation.runs.groups import group_runs
from tests.helpers.report_runs import write_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NODE = shutil.which("node")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --enable-logging=stderr --window-size=1600,1200 --virtual-time-budget=5000 --dump-dom"
)
WIDTHS = (390, 1024, 1440)  # CSS px
PACKAGE = "axe_core_python"  # in the extra `dev`; contains axe-core's script
MARGINS = {"first": -1, "last": 1, "counts": [1, 2]}
HOSTILE = "a_b & 50% ~ [x] | <i> τ≤1 é 図"
MEASURE = """<script>
console.error("a known message");
const click = (element) => { element.click(); return element; };
async function measure(frame) {
  const page = frame.contentDocument, view = frame.contentWindow, run = (text) => view.eval(text);
  const table = page.querySelector("table"), header = table.querySelector("button");
  const latex = run("FORMATS.latex(readTable(document.querySelector('table')))");
  const markdown = run("FORMATS.markdown(readTable(document.querySelector('table')))");
  header.click(); header.click();
  const column = [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
  const figure = page.getElementById("loss"), form = page.querySelector("form.switches");
  const shown = () => [...figure.querySelectorAll("[data-label]")].filter((g) => g.style.display !== "none").length;
  const before = shown();
  click(form.querySelector(".labels input"));
  const without = shown(), file = view.svgFile(figure);
  figure.querySelector("details").open = true;
  await new Promise((done) => setTimeout(done, 100));
  let violations = [];
  if (window.AXE && frame.dataset.check) { // takes seconds; the content is the same at all widths
    run(AXE);
    const { violations: found } = await view.axe.run(page, { resultTypes: ["violations"] }); // half the time
    violations = found.map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`);
  }
  return { visible: page.documentElement.clientWidth, needed: page.documentElement.scrollWidth, column, latex, markdown,
    sorted: header.parentElement.getAttribute("aria-sort"), before, without, violations,
    csv: run("FORMATS.csv(readData(document.getElementById('loss')))"),
    inFile: file.split("data-label=").length - 1, rows: figure.querySelectorAll("details tbody tr").length };
}
addEventListener("load", async () => {
  const measured = [];
  for (const frame of document.querySelectorAll("iframe")) measured.push(await measure(frame));
  document.body.dataset.measured = JSON.stringify(measured);
});
</script>"""


def opened(page: str, folder: Path) -> list[dict[str, Any]]:
    """Open the page at all widths and return what MEASURE found."""
    assert CHROMIUM is not None
    text = escape(page, quote=True)
    frames = "".join(
        f'<iframe title="page" style="width:{width}px;height:900px" srcdoc="{text}" '
        f"{'data-check=1' if width == WIDTHS[0] else ''}></iframe>"
        for width in WIDTHS
    )
    source = (resources.files(PACKAGE) / "axe.min.js").read_text() if find_spec(PACKAGE) else ""
    axe = f"<script>window.AXE = {json.dumps(source)};</script>"  # the source contains no </script>
    (folder / "frames.html").write_text(f'<!doctype html><meta charset="utf-8"><body>{axe}{MEASURE}{frames}</body>')
    command = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={folder / 'browser'}", f"file://{folder}/frames.html"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=300)
    console = [line for line in output.stderr.splitlines() if "CONSOLE" in line]
    assert len(console) == 1 and "a known message" in console[0], console
    measured = re.search(r'data-measured="(.*?)"', output.stdout)
    assert measured, output.stderr[-2000:]
    found: list[dict[str, Any]] = json.loads(unescape(measured[1]))
    assert len(found) == len(WIDTHS)
    return found


def in_node(code: str) -> str:
    """Run code after report.js, on an empty page, and return what it prints."""
    assert NODE is not None
    script = (Path(blocks.__file__).parent / "report.js").read_text()
    page = "const document = { addEventListener() {}, querySelectorAll: () => [] }, LATEX = {};"
    new = "Map.groupBy = () => new Map();"  # Node.js before 21 lacks it
    command = [NODE, "-e", f"{page}{new}{script}\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.skipif(NODE is None, reason="no Node.js on the PATH")
def test_the_csv_of_a_table_has_the_displayed_values_not_the_sort_keys() -> None:
    rows = [
        [{"text": "1–3", "note": "", "sort": "1"}, {"text": "holds", "note": "by far", "sort": "0"}],
        [{"text": "-0.0120", "note": "", "sort": "-0.012049"}, {"text": "1,235", "note": "", "sort": "1234.5"}],
        [{"text": "-1+2", "note": "", "sort": None}, {"text": '=A"1', "note": "", "sort": None}],
    ]
    table = json.dumps({"columns": ["rank", "verdict"], "numeric": [True, False], "rows": rows})
    assert in_node(f"process.stdout.write(FORMATS.csv({table}));").splitlines() == [
        "rank,verdict",
        "1–3,holds by far",
        '-0.0120,"1,235"',
        '\'-1+2,"\'=A""1"',
    ]


@pytest.mark.skipif(NODE is None, reason="no Node.js on the PATH")
def test_figures_share_switches_only_if_a_label_has_the_same_colour_in_all_of_them() -> None:
    """Else the panel, which replaces the legends, would show the colours of the last figure."""
    drawn = [density_plot("m", "", {label: [MARGINS] for label in labels}) for labels in ("ab", "ac", "bc")]
    keys = [json.dumps([[*key, "solid"] for key in figure.colours.items()]) for figure in drawn]
    alike, unlike = (json.dumps([{"dataset": {"keys": keys[at]}} for at in pair]) for pair in ((0, 1), (0, 2)))
    assert in_node(f"process.stdout.write(`${{agree({alike})}} ${{agree({unlike})}}`);") == "true false"


@pytest.mark.skipif(NODE is None, reason="no Node.js on the PATH")
def test_a_button_that_is_clicked_twice_gets_its_own_text_back() -> None:
    clicks = """const navigator = { clipboard: { writeText: async () => {} } };
    const button = { dataset: {}, textContent: "Copy" }, timers = [];
    globalThis.setTimeout = (later) => timers.push(later);
    copy(button, "").then(() => copy(button, "")).then(() => {
      const during = button.textContent;
      timers.forEach((later) => later());
      process.stdout.write(`${during} ${button.textContent}`);
    });"""
    assert in_node(clicks) == "Copied Copy"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    names = [HOSTILE, *(f"a_method_with_a_rather_long_name_{number}" for number in range(4))]
    for number, name in enumerate(names):
        folder = write_run(tmp_path / "runs", name=f"m{number}", with_artifacts=number == 0)
        config = folder / "config.yaml"
        config.write_text(config.read_text().replace(f"name: m{number}\n", f"name: {json.dumps(name)}\n"))
    page = write_report([tmp_path / "runs"], tmp_path / "out").html.read_text()
    labels = [group.label for group in group_runs(reader.find([tmp_path / "runs"]))]
    for frame, width in zip(opened(page, tmp_path), WIDTHS, strict=True):
        assert frame["violations"] == []
        assert frame["needed"] <= frame["visible"] <= width
        assert frame["sorted"] == "descending"
        assert frame["column"] == sorted(frame["column"], reverse=True) and sorted(frame["column"]) == sorted(labels)
        assert (frame["before"], frame["without"], frame["inFile"]) == (5, 4, 4)  # one method is switched off
        assert frame["csv"].splitlines()[0] == "curve,seed,step,loss" and frame["rows"] == 100
        assert r"a\_b \& 50\% \textasciitilde{} [x] $|$ $<$i$>$ $\tau$$\leq$1 é ?" in frame["latex"]
        assert r"| a_b &#38; 50% ~ \[x\] \| &#60;i&#62; τ≤1 é 図 |" in frame["markdown"]
