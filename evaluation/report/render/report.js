// Sort a table by the clicked column: numbers by data-sort, text in natural order, second click descending.
for (const button of document.querySelectorAll("thead button")) button.addEventListener("click", () => {
  const header = button.parentElement, headerRow = header.parentElement, column = header.cellIndex;
  const body = headerRow.closest("table").tBodies[0];
  const descending = header.getAttribute("aria-sort") === "ascending";
  const key = (row) => {
    const cell = row.cells[column];
    return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent;
  };
  const rows = [...body.rows].sort((a, b) => {
    const x = key(a), y = key(b);
    if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
    const order = typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true });
    return descending ? -order : order;
  });
  for (const other of headerRow.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  body.append(...rows);
});
