// The table of selected rows and the file they are saved to.

const TABLE_ROWS = 200;

const cellOf = (tag, text) => Object.assign(document.createElement(tag), {textContent: text});

function rowElement(tag, texts) {
  const row = document.createElement("tr");
  row.append(...texts.map((text) => cellOf(tag, text)));
  return row;
}

/** Show the first rows of a selection and how many there are. */
function showSelection(page, points) {
  const n = points.length;
  byId("selected-count").textContent = n === 0 ? "No rows selected." : `${n.toLocaleString("en")} ${n === 1 ? "row" : "rows"} selected`
    + (n > TABLE_ROWS ? `; the table shows the first ${TABLE_ROWS}, the file holds all.` : ".");
  for (const id of ["save", "clear"]) byId(id).disabled = n === 0;
  byId("table").hidden = n === 0;
  const head = byId("selected-head");
  head.replaceChildren(rowElement("th", ["row", ...idLabel(page), ...page.columns.map((column) => column.label)]));
  for (const cell of head.querySelectorAll("th")) cell.scope = "col";
  byId("selected-rows").replaceChildren(...points.slice(0, TABLE_ROWS).map((point) =>
    rowElement("td", [rowOf(page, point).toString(), ...idOf(page, point), ...page.columns.map((column) => textOf(column, point))])));
}

/** A field of a CSV file (RFC 4180). */
const csvField = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Numbers as precise as the page holds them. */
function csvValue(column, point) {
  if (column.names !== null) return csvField(textOf(column, point));
  const value = column.values[point];
  return Number.isNaN(value) ? "" : String(Number(value.toPrecision(9)));
}

function toCsv(page, points) {
  const lines = [["row", ...idLabel(page).map(csvField), ...page.columns.map((column) => csvField(column.name))].join(",")];
  for (const point of points) {
    lines.push([rowOf(page, point), ...idOf(page, point).map(csvField), ...page.columns.map((column) => csvValue(column, point))].join(","));
  }
  return `${lines.join("\r\n")}\r\n`;
}

function saveSelection(page, points) {
  const address = URL.createObjectURL(new Blob([toCsv(page, points)], {type: "text/csv"}));
  Object.assign(document.createElement("a"), {href: address, download: "selection.csv"}).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
