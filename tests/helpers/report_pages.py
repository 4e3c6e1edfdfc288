"""Read a report: the tables and tags of its page, the texts of its figures."""

from html.parser import HTMLParser
from xml.etree import ElementTree

from evaluation.report.blocks import Figure


class Page(HTMLParser):
    """The text of each table cell, by row, and all tags with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self.rows[-1][-1] = self.rows[-1][-1].strip()
            self.in_cell = False

    def handle_data(self, data: str) -> None:
        if self.in_cell:
            self.rows[-1][-1] += data

    def row(self, *beginning: str) -> list[str]:
        """Return the cells of the only row that begins with these cells."""
        matching = [cells for cells in self.rows if tuple(cells[: len(beginning)]) == beginning]
        assert len(matching) == 1, (beginning, matching)
        return matching[0]


def texts(figure: Figure) -> list[str]:
    """Return the texts of a figure's SVG."""
    svg = ElementTree.fromstring(f"<svg>{figure.body}</svg>")
    return ["".join(element.itertext()) for element in svg.iter("text")]
