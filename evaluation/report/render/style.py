"""Look and behaviour of the HTML report: plain CSS and a few lines of script, nothing from elsewhere."""

STYLE = """
:root { color-scheme: light dark; --page: #fbfbf9; --card: #fff; --ink: #1d2127; --soft: #626a75;
  --line: #e2e3df; --accent: #2f74b5; --good: #1b7a4f; --good-bg: #e3f3ea; --bad: #b3303f; --bad-bg: #fae7e8;
  --muted-bg: #eeefec; --edge: #0004; }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --card: #1b1f25; --ink: #e4e6e9;
  --soft: #9aa3af; --line: #2f353d; --accent: #6aabea; --good: #6fcf9f; --good-bg: #17352a; --bad: #f08c95;
  --bad-bg: #41212a; --muted-bg: #282d34; --edge: #000c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, -apple-system,
  "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1360px; margin: 0 auto; padding: 40px 24px 64px; }
header { border-bottom: 2px solid var(--ink); padding-bottom: 18px; margin-bottom: 8px; }
.kind { font-size: 13px; letter-spacing: .08em; text-transform: uppercase; color: var(--accent); margin: 0; }
h1 { font: 600 clamp(26px, 5vw, 38px)/1.15 ui-serif, Georgia, "Times New Roman", serif; margin: 4px 0 8px;
  overflow-wrap: anywhere; }
.lead { font-size: 17px; color: var(--soft); margin: 0; max-width: 76ch;
  text-wrap: pretty; }
h2 { font: 600 22px/1.3 ui-serif, Georgia, "Times New Roman", serif; margin: 40px 0 12px; }
h3 { font-size: 15px; font-weight: 600; margin: 20px 0 10px; }
p { margin: 0 0 12px; max-width: 75ch; overflow-wrap: anywhere; }
.muted { color: var(--soft); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; margin: 0 0 16px;
  background: linear-gradient(90deg, var(--card) 30%, transparent) local,
    linear-gradient(270deg, var(--card) 30%, transparent) right / 100% 100% no-repeat local,
    radial-gradient(farthest-side at 0 50%, var(--edge), transparent) 0 / 12px 100% no-repeat,
    radial-gradient(farthest-side at 100% 50%, var(--edge), transparent) right / 12px 100% no-repeat,
    var(--card); } /* a shade at the edge behind which there is more */
table { border-collapse: collapse; width: 100%; font-size: 14.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 8px 14px; text-align: left; white-space: nowrap; border-top: 1px solid var(--line);
  vertical-align: top; }
td.long { white-space: normal; min-width: 28ch; max-width: 52ch; overflow-wrap: anywhere; }
thead th { border-top: 0; padding: 0; font-size: 13px; font-weight: 600; color: var(--soft); }
thead th button { all: unset; box-sizing: border-box; cursor: pointer; width: 100%; padding: 9px 14px; }
th.n button { white-space: normal; min-width: 8ch; }
thead th button:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
thead th button::after { content: " \\2195"; opacity: .3; }
th[aria-sort=ascending] button::after { content: " \\2191"; opacity: 1; }
th[aria-sort=descending] button::after { content: " \\2193"; opacity: 1; }
tbody tr:hover td { background: color-mix(in srgb, var(--accent) 6%, transparent); }
th.n, td.n { text-align: right; }
td.value { font-weight: 600; }
.note { color: var(--soft); font-size: 13px; }
.pill { padding: 2px 10px; border-radius: 99px; font-size: 13px; background: var(--muted-bg);
  color: var(--soft); }
.pill.good { background: var(--good-bg); color: var(--good); }
.pill.bad { background: var(--bad-bg); color: var(--bad); }
.span { display: inline-block; width: 96px; height: 14px; vertical-align: -2px; margin-left: 12px; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: 1px; margin: 0 0 16px;
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
dl div { background: var(--card); padding: 9px 14px; box-shadow: 0 0 0 1px var(--line); }
dt { font-size: 12.5px; color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; font-size: 15px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px;
  margin-bottom: 16px; }
figure { margin: 0; padding: 14px; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  min-width: 0; overflow-x: auto; }
figure > svg { display: block; width: 100%; height: auto; margin: auto; stroke-linejoin: round; }
figure.paper { background: #fff; border-color: #ddd; }
figure.paper img { display: block; max-width: 100%; min-width: min(100%, 560px); margin: auto; }
figure.paper figcaption { color: #555; }
figcaption { font-size: 14px; color: var(--soft); margin-bottom: 8px; overflow-wrap: anywhere; }
details { margin-bottom: 16px; }
summary { cursor: pointer; font-weight: 600; font-size: 15px; padding: 4px 0 10px; overflow-wrap: anywhere; }
.gallery { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 12px; }
.query { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px;
  min-width: 0; }
.asked { display: flex; justify-content: space-between; gap: 12px; align-items: start; margin-bottom: 10px;
  font-size: 15px; line-height: 1.4; }
.asked > span:first-child { overflow-wrap: anywhere; }
.asked .pill { white-space: nowrap; flex: none; }
.images { display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); gap: 8px; max-width: 560px; }
.images div { font-size: 12px; color: var(--soft); text-align: center; font-variant-numeric: tabular-nums; }
.query img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain; border-radius: 5px;
  background: var(--muted-bg); border: 3px solid transparent; }
.correct img { border-color: var(--good); }
.correct, .images .correct { color: var(--good); font-weight: 600; }
.of-image { display: grid; grid-template-columns: 96px minmax(0, 1fr); gap: 14px; align-items: start; }
.of-image .pill { display: inline-block; margin-top: 8px; white-space: nowrap; }
.texts { margin: 0; padding: 0; list-style: none; font-size: 14px; line-height: 1.4; }
.texts li { display: flex; gap: 10px; padding: 3px 0; }
.texts li > span:first-child { flex: none; width: 58px; font-variant-numeric: tabular-nums;
  text-align: right; }
.texts li > span:last-child { overflow-wrap: anywhere; }
footer { margin-top: 48px; font-size: 13px; color: var(--soft); }
@media (max-width: 640px) { main { padding: 24px 14px 48px; } th, td { padding: 8px 7px; }
  td.long { min-width: 20ch; } thead th button { padding: 9px 7px; } .pill { padding: 2px 7px; font-size: 12px; }
  .span { width: 80px; } figure { padding: 10px; }
  dl { grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); } }
@media print { details::details-content { content-visibility: visible; }
  thead th button::after { content: ""; } }
"""

SCRIPT = """
for (const button of document.querySelectorAll("thead button")) button.addEventListener("click", () => {
  const head = button.parentElement, row = head.parentElement, at = head.cellIndex;
  const body = row.closest("table").tBodies[0];
  const down = head.getAttribute("aria-sort") === "ascending";
  const key = (line) => { const cell = line.cells[at];
    return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent; };
  const lines = [...body.rows].sort((a, b) => { const x = key(a), y = key(b);
    if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
    const order = typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true });
    return down ? -order : order; });
  for (const other of row.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...lines);
});
"""
