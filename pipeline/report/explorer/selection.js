// The table of selected rows and the file they are saved to.

const TABLE_ROWS = 200;

const cellOf = (tag, text) => Object.assign(document.createElement(tag), {textContent: text});

function rowElement(tag, texts) {
  const row = document.createElement("tr");
  row.append(...texts.map((text) => cellOf(tag, text)));
  return row;
}

/** Rows of a table with a head. */
function tableElement(head, rows) {
  const table = document.createElement("table");
  table.createTHead().append(rowElement("th", head));
  for (const cell of table.tHead.querySelectorAll("th")) cell.scope = "col";
  table.createTBody().append(...rows);
  return table;
}

/** How a selection differs from all rows: {classes: {label, rows: [name, n, total]}, means: [label, mean, of all]}. */
function showSummary({classes, means}) {
  const parts = [];
  if (classes !== null) {
    const most = Math.max(1, ...classes.rows.map((row) => row[1]));
    parts.push(tableElement([classes.label, "selected", "of all"], classes.rows.map(([name, n, total]) => {
      const row = rowElement("td", [name, n.toLocaleString("en"), total.toLocaleString("en")]);
      row.children[1].style.setProperty("--share", `${(100 * n) / most}%`);
      return row;
    })));
  }
  if (means.length > 0) parts.push(tableElement(["mean", "selected", "of all"], means.map((row) => rowElement("td", row))));
  byId("summary").replaceChildren(...parts);
}

/** Counts by class (of `column`, else of the first column with classes) and means by column of points. */
function summaryOf(page, points, column) {
  if (points.length === 0) return {classes: null, means: []};
  const meanOf = (values, chosen) => {
    let [sum, n] = [0, 0];
    const add = (value) => { if (!Number.isNaN(value)) { sum += value; n++; } };
    if (chosen === null) values.forEach(add); else for (const point of chosen) add(values[point]);
    return n === 0 ? NaN : sum / n;
  };
  const text = (of, mean) => (Number.isNaN(mean) ? "" : of.kind === "date" ? dateText(mean, false) : String(Number(mean.toPrecision(4))));
  const means = page.columns.filter((of) => of.names === null).map((of) => {
    of.mean ??= meanOf(of.values, null);
    return [of.label, text(of, meanOf(of.values, points)), text(of, of.mean)];
  });
  const by = column?.names ? column : page.columns.find((of) => of.names !== null && of.role === "value");
  if (!by) return {classes: null, means};
  const [counts, totals] = [new Uint32Array(by.names.length + 1), new Uint32Array(by.names.length + 1)];
  for (const point of points) counts[Math.min(by.values[point], by.names.length)]++;
  by.values.forEach((code) => { totals[Math.min(code, by.names.length)]++; });
  const rows = Array.from(counts, (n, code) => [by.names[code] ?? "unknown", n, totals[code]]).filter((row) => row[1] > 0)
    .sort((a, b) => b[1] - a[1]).slice(0, 30);
  return {classes: {label: by.label, rows}, means};
}

/** Show the first rows of a selection of n rows as a table. */
function showTable(head, rows, n) {
  byId("selected-count").textContent = n === 0 ? "No rows selected." : `${n.toLocaleString("en")} ${n === 1 ? "row" : "rows"} selected`
    + (n > TABLE_ROWS ? `; the table shows the first ${TABLE_ROWS}, the file holds all.` : ".");
  for (const id of ["save", "clear"]) byId(id).disabled = n === 0;
  byId("table").hidden = n === 0;
  byId("selected-head").replaceChildren(rowElement("th", head));
  for (const cell of byId("selected-head").querySelectorAll("th")) cell.scope = "col";
  byId("selected-rows").replaceChildren(...rows.map((texts) => rowElement("td", texts)));
}

/** The first rows of points as texts, and their number. */
function tableOf(page, points) {
  const texts = (point) => [rowOf(page, point).toString(), ...idOf(page, point), ...page.columns.map((column) => textOf(column, point))];
  const head = ["row", ...idLabel(page), ...page.columns.map((column) => column.label)];
  return {head, rows: points.slice(0, TABLE_ROWS).map(texts), count: points.length};
}

/** Show a part {url, x, y, width, height, full: [width, height]} of a picture in every place for it; null hides them. */
function showImage(row, image) {
  for (const element of document.querySelectorAll(".image")) {
    element.hidden = image === null;
    if (image === null) continue;
    const scale = Math.max(1, Math.floor(96 / Math.max(image.width, image.height)));
    element.setAttribute("aria-label", `Image of row ${row}`);
    Object.assign(element.style, {
      width: `${image.width * scale}px`, aspectRatio: `${image.width} / ${image.height}`,
      backgroundImage: `url("${image.url}")`, backgroundSize: image.full.map((side) => `${side * scale}px`).join(" "),
      backgroundPosition: `${-image.x * scale}px ${-image.y * scale}px`,
    });
  }
}

/** Show the values of a row, as pairs of label and text, its image, and a tip at [left, top] in a picture. */
function showValues({row, values, tip: texts}, image, [left, top], width) {
  byId("point-title").textContent = `Row ${row}`;
  byId("point-help").hidden = true;
  byId("point").hidden = false;
  byId("point").replaceChildren(...values.flatMap(([label, value]) =>
    [cellOf("dt", label), cellOf("dd", value || "unknown")]));
  const tip = byId("tip");
  byId("tip-text").textContent = [`row ${row}`, ...texts].filter(Boolean).join(" · ");
  showImage(row, image);
  tip.hidden = false;
  tip.style.left = `${Math.max(0, Math.min(left + 12, width - tip.offsetWidth))}px`;
  tip.style.top = `${Math.max(0, top > tip.offsetHeight + 12 ? top - tip.offsetHeight - 10 : top + 14)}px`;
}

/** A field of a CSV file (RFC 4180). */
const csvField = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Numbers as precise as the page holds them. */
function csvValue(column, point) {
  if (column.names !== null) return csvField(textOf(column, point));
  const value = column.values[point];
  if (column.kind !== "number") return textOf(column, point);
  return Number.isNaN(value) ? "" : String(Number(value.toPrecision(9)));
}

function toCsv(page, points) {
  const lines = [["row", ...idLabel(page).map(csvField), ...page.columns.map((column) => csvField(column.name))].join(",")];
  for (const point of points) {
    lines.push([rowOf(page, point), ...idOf(page, point).map(csvField), ...page.columns.map((column) => csvValue(column, point))].join(","));
  }
  return `${lines.join("\r\n")}\r\n`;
}

function download(blob, name) {
  const address = URL.createObjectURL(blob);
  Object.assign(document.createElement("a"), {href: address, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
