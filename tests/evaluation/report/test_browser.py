"""The page in a real browser at phone and desktop width: it fits, tables sort, the console has no errors."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path

import pytest

from evaluation.report.writer import write_report
from tests.helpers.report_runs import write_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --enable-logging=stderr --window-size=1600,1200 --virtual-time-budget=5000 --dump-dom"
)
WIDTHS = (390, 1440)  # CSS px
MEASURE = """<script>
console.error("a known message");
addEventListener("load", () => {
  document.body.dataset.measured = JSON.stringify([...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument, table = page.querySelector("table"), header = table.querySelector("button");
    header.click(); header.click();
    return { visible: page.documentElement.clientWidth, needed: page.documentElement.scrollWidth,
      sorted: header.parentElement.getAttribute("aria-sort"),
      column: [...table.tBodies[0].rows].map((row) => row.cells[0].textContent) };
  }));
});
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
def test_the_page_fits_phone_and_desktop_sorts_and_logs_no_error(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    for number in range(5):
        write_run(tmp_path / "runs", name=f"a_method_with_a_rather_long_name_{number}", with_artifacts=number == 0)
    page = escape(write_report([tmp_path / "runs"], tmp_path / "out").html.read_text(), quote=True)
    frames = "".join(f'<iframe style="width:{width}px;height:900px" srcdoc="{page}"></iframe>' for width in WIDTHS)
    (tmp_path / "frames.html").write_text(f'<!doctype html><meta charset="utf-8"><body>{MEASURE}{frames}</body>')
    command = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={tmp_path / 'browser'}", f"file://{tmp_path}/frames.html"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=300)
    console = [line for line in output.stderr.splitlines() if "CONSOLE" in line]
    assert len(console) == 1 and "a known message" in console[0], console
    measured = re.search(r'data-measured="(.*?)"', output.stdout)
    assert measured, output.stderr[-2000:]
    for frame, width in zip(json.loads(unescape(measured[1])), WIDTHS, strict=True):
        assert frame["needed"] <= frame["visible"] <= width
        assert frame["sorted"] == "descending"
        assert frame["column"] == sorted(frame["column"], reverse=True) and len(frame["column"]) == 5
