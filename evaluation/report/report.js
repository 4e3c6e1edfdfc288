// Tables: sort, copy, download. Figures: the table behind each, downloads, switches of the curves.
// The template defines LATEX before this script: character, or character and space -> LaTeX (LATEX in render.py).
const MAX_ROWS = 500; // shown of the table behind a figure; the CSV has all of them
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const element = (tag, text = "", properties = {}) => Object.assign(document.createElement(tag), { textContent: text, ...properties });

// Sort a table by the clicked column: numbers by data-sort, text in natural order, second click descending.
document.addEventListener("click", (event) => {
  const header = event.target.closest("thead button")?.parentElement;
  if (!header) return;
  const headerRow = header.parentElement, column = header.cellIndex;
  const body = headerRow.closest("table").tBodies[0];
  const descending = header.getAttribute("aria-sort") === "ascending";
  const key = (row) => {
    const cell = row.cells[column], number = Number(cell.dataset.sort);
    return Number.isNaN(number) ? cell.textContent : number; // no data-sort, or nan
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

// A table as { columns, numeric, rows }; a cell is { text, note, sort }.
function readTable(table) {
  const columns = all("thead th", table).map((header) => header.textContent.trim());
  const numeric = all("thead th", table).map((header) => header.classList.contains("n"));
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => {
    const note = cell.querySelector(".note")?.textContent ?? "";
    const whole = cell.textContent.trim();
    return { text: whole.slice(0, whole.length - note.length).trim(), note, sort: cell.dataset.sort };
  }));
  return { columns, numeric, rows };
}

// Name the curves of the figures by label and seed; a title is shown on hover.
for (const figure of all("figure:has(script)")) {
  const { curves } = JSON.parse(figure.querySelector("script").textContent);
  for (const [id, [label, seed]] of Object.entries(curves)) {
    const curve = document.getElementById(id);
    if (!curve) continue; // empty
    Object.assign(curve.dataset, { label, seed: seed ?? "" });
    const title = curve.insertBefore(document.createElementNS(curve.namespaceURI, "title"), curve.firstChild);
    title.textContent = seed === null ? label : `${label}, seed ${seed}`;
  }
}

// The table behind a figure. null: the value in the row above.
function readData(figure) {
  const { columns, rows } = JSON.parse(figure.querySelector("script").textContent);
  rows.forEach((row, at) => row.forEach((value, column) => { row[column] = value ?? rows[at - 1][column]; }));
  const numeric = columns.map((_, at) => rows.some((row) => typeof row[at] === "number"));
  const cell = (value) => ({ text: String(value), note: "", sort: typeof value === "number" ? value : undefined });
  return { columns, numeric, rows: rows.map((row) => row.map(cell)) };
}

function latexText(text) {
  const plain = (sign) => /[\x00-\x7fÀ-ÏÑ-ÖØ-Ýß-ïñ-öø-ýÿ]/.test(sign) ? sign
    : sign.normalize("NFKD").replace(/[^\x00-\x7f]/g, "") || "?";
  let found = "";
  for (let at = 0; at < text.length;) {
    const sign = [text.slice(at, at + 2), text[at]].find((part) => part in LATEX) ?? String.fromCodePoint(text.codePointAt(at));
    found += LATEX[sign] ?? plain(sign);
    at += sign.length;
  }
  return found.startsWith("[") ? `{${found}}` : found;
}

const FORMATS = {
  latex({ columns, numeric, rows }) { // as render_latex in render.py
    const text = (cell, at) => latexText(numeric[at] && cell.note ? `${cell.text} ${cell.note}` : cell.text);
    const lines = [columns.map(latexText), ...rows.map((row) => row.map(text))].map((row) => `${row.join(" & ")} \\\\`);
    const sides = numeric.map((right) => right ? "r" : "l").join("");
    return [`\\begin{tabular}{${sides}}`, "\\toprule", lines[0], "\\midrule", ...lines.slice(1), "\\bottomrule",
      "\\end{tabular}", ""].join("\n");
  },
  markdown({ columns, numeric, rows }) {
    const clean = (text) => text.replace(/[&<>]/g, (sign) => `&#${sign.codePointAt(0)};`).replace(/([\\|`*[\]])/g, "\\$1");
    const text = (cell) => [cell.text, cell.note].filter(Boolean).map(clean).join("<br>");
    const lines = [columns.map(clean), numeric.map((right) => right ? "---:" : "---"), ...rows.map((row) => row.map(text))];
    return lines.map((line) => `| ${line.join(" | ")} |\n`).join("");
  },
  csv({ columns, rows }) { // a text that begins like a formula gets a quote, so that no spreadsheet runs it
    const safe = (text) => /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    const quote = (text) => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const text = (cell) => safe(cell.note ? `${cell.text} ${cell.note}` : cell.text);
    return [columns.map(safe), ...rows.map((row) => row.map(text))].map((row) => `${row.map(quote).join(",")}\n`).join("");
  },
};

function svgFile(figure) {
  const svg = figure.querySelector("svg").cloneNode(true);
  const width = svg.getAttribute("viewBox").split(" ")[2];
  const height = Number(svg.getAttribute("viewBox").split(" ")[3]) + Number(figure.dataset.keys ? figure.dataset.legend : 0);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`); // with the legend
  all("[data-label]", svg).filter((curve) => curve.style.display).forEach((curve) => curve.remove());
  svg.setAttribute("style", "color:#1d2127;font-family:sans-serif;stroke-linejoin:round");
  svg.setAttribute("width", `${0.8 * width}pt`); // its type of 10 px is 8 pt then; 298 px are a column of 84 mm
  svg.setAttribute("height", `${0.8 * height}pt`);
  return new XMLSerializer().serializeToString(svg).replaceAll("currentColor", "#1d2127");
}

function download(name, type, text) {
  const link = element("a", "", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
  link.click();
  URL.revokeObjectURL(link.href);
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // insecure pages have no clipboard
    const area = document.body.appendChild(element("textarea", "", { value: text }));
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = button.dataset.name ??= button.textContent; // not "Copied" after a second click
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 1500);
}

const action = (label, run) => element("button", label, { type: "button", onclick: (event) => run(event.target) });
const copyButtons = (read) => [
  action("Copy LaTeX", (button) => copy(button, FORMATS.latex(read()))),
  action("Copy Markdown", (button) => copy(button, FORMATS.markdown(read()))),
];

for (const [at, table] of all(".scroll > table").entries()) {
  const tools = element("p", "", { className: "tools" });
  const read = () => readTable(table);
  tools.append(...copyButtons(read), action("CSV", () => download(`table-${at + 1}.csv`, "text/csv", FORMATS.csv(read()))));
  table.parentElement.after(tools);
}

function dataTable({ columns, numeric, rows }) {
  const table = element("table"), box = element("div", "", { className: "scroll", tabIndex: 0 });
  const side = (cell, at) => { cell.className = numeric[at] ? "n" : ""; return cell; };
  const headers = columns.map((name, at) => {
    const header = side(element("th", "", { scope: "col" }), at);
    header.append(element("button", name, { type: "button" }));
    return header;
  });
  table.createTHead().insertRow().append(...headers);
  const body = table.createTBody();
  for (const row of rows.slice(0, MAX_ROWS)) body.insertRow().append(...row.map((cell, at) => {
    const one = side(element("td", cell.text), at);
    if (cell.sort !== undefined) one.dataset.sort = cell.sort;
    return one;
  }));
  box.append(table);
  return rows.length > MAX_ROWS ? [box, element("p", `The first ${MAX_ROWS} of ${rows.length} rows; the CSV has all.`)] : [box];
}

for (const figure of all("figure:has(script)")) {
  const details = figure.querySelector("details"), name = figure.id;
  const read = () => readData(figure);
  details.querySelector(".tools").append(
    action("SVG", () => download(`${name}.svg`, "image/svg+xml", svgFile(figure))),
    action("CSV", () => download(`${name}.csv`, "text/csv", FORMATS.csv(read()))),
    action("LaTeX", () => download(`${name}.tex`, "application/x-tex", FORMATS.latex(read()))),
    ...copyButtons(read));
  details.addEventListener("toggle", () => details.append(...dataTable(read())), { once: true });
}

// Add a panel before `place` that switches the figures' curves off and on, by label and by seed; cut off their legends.
function switches(figures, place) {
  const drawn = figures.flatMap((figure) => all("[data-label]", figure));
  const curves = new Map(figures.flatMap((figure) => JSON.parse(figure.dataset.keys)).map((curve) => [curve[0], curve]));
  const seeds = [...new Set(drawn.map((curve) => curve.dataset.seed))].filter(Boolean).sort((a, b) => a - b);
  const form = element("form", "", { className: "switches" });
  const group = (title, className, boxes) => {
    const set = element("fieldset", "", { className });
    set.append(element("legend", title), ...boxes);
    form.append(set);
  };
  const box = (value, ...key) => {
    const label = element("label");
    label.append(element("input", "", { type: "checkbox", checked: true, value }), ...key, value);
    return label;
  };
  const keyed = ([label, colour, style]) => {
    const key = element("span", "", { className: "key" });
    key.style.borderTop = `4px ${style} ${colour}`;
    return box(label, key);
  };
  const unchecked = (group) => new Set(all(`${group} input:not(:checked)`, form).map((input) => input.value));
  const show = () => {
    const labels = unchecked(".labels"), without = unchecked(".seeds");
    for (const { dataset, style } of drawn) style.display = labels.has(dataset.label) || without.has(dataset.seed) ? "none" : "";
  };
  const flip = action("All off", (button) => {
    const on = button.textContent === "All on";
    button.textContent = on ? "All off" : "All on";
    for (const input of all(".labels input", form)) input.checked = on;
    show();
  });
  group("Curves", "labels", [...curves.values()].map(keyed).concat(curves.size > 3 ? flip : []));
  if (seeds.length > 1) group("Seeds", "seeds", seeds.map((seed) => box(seed)));
  form.addEventListener("change", show);
  place.before(form);
  for (const figure of figures) figure.querySelector("svg").viewBox.baseVal.height -= figure.dataset.legend;
}

// Return true if every label has one colour and style in all figures; keys: see _keys in render.py.
function agree(figures) {
  const keys = figures.flatMap((figure) => JSON.parse(figure.dataset.keys));
  return new Set(keys.map(String)).size === new Set(keys.map(([label]) => label)).size;
}

// one panel per section, and per folded block of a section; one per figure if a label has several colours
const panels = Map.groupBy(all("figure[data-keys]"), (figure) => figure.closest("details, section"));
for (const figures of panels.values()) {
  if (agree(figures)) switches(figures, figures[0].closest(".figures"));
  else for (const figure of figures) switches([figure], figure.querySelector(".wide"));
}
