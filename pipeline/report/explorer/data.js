// The columns of the page. report/explore.py encodes what is decoded here.

const byId = (id) => document.getElementById(id);

/** Bytes of one base64 payload of the page; its text is dropped, since only the bytes are used from here on. */
function takePayload(index) {
  const element = byId(`data-${index}`);
  const binary = atob(element.textContent.trim());
  element.remove();
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes.buffer;
}

const TYPES = {u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array};

/** Numbers of a column, NaN where unknown: as they are, or steps from `low`. */
function decodeNumbers({type, low, step, data}) {
  const codes = new TYPES[type](takePayload(data));
  const unknown = 2 ** (8 * codes.BYTES_PER_ELEMENT) - 1;
  return Float64Array.from(codes, type[0] === "f" ? Number : (code) => (code === unknown ? NaN : low + code * step));
}

function decodeColumn(column) {
  if (column.names !== null) return {...column, values: new TYPES[`u${column.bytes}`](takePayload(column.data))};
  const digits = column.type[0] === "f" ? null : Math.max(0, Math.min(12, Math.floor(-Math.log10(column.step))));
  return {...column, values: decodeNumbers(column), digits};
}

/** What the page shows: its columns, and the input row of each of its points. */
function decodePage(content) {
  const columns = content.columns.map((column) => decodeColumn(column));
  const wide = content.rows?.wide ? Float64Array : Uint32Array;
  const rows = content.rows === null ? null : new wide(takePayload(content.rows.data));
  const ids = content.ids === null ? null
    : {label: content.ids.label, texts: new TextDecoder().decode(takePayload(content.ids.data)).split("\n")};
  return {...content, columns, rows, ids, images: content.images === null ? null : decodeImages(content.images)};
}

/** The sheet of images as an address, and the ascending points whose images it holds. */
function decodeImages(images) {
  const points = new Uint32Array(takePayload(images.points));
  const png = byId(`data-${images.png}`).textContent.trim();
  const full = [images.columns * images.width, Math.ceil(points.length / images.columns) * images.height];
  return {...images, points, full, url: `data:image/png;base64,${png}`};
}

/** The image of a point as a part of the sheet; null where the page has none. */
function imageOf(page, point) {
  if (page.images === null) return null;
  const {points, columns, width, height, full, url} = page.images;
  const place = placeIn(points, point);
  return place < 0 ? null : {url, full, width, height, x: (place % columns) * width, y: Math.floor(place / columns) * height};
}

const rowOf = (page, point) => (page.rows === null ? point : page.rows[point]);

/** The names and values of the id of a point; empty where rows have no ids. */
const idOf = (page, point) => (page.ids === null ? [] : [page.ids.texts[point]]);
const idLabel = (page) => (page.ids === null ? [] : [page.ids.label]);

/** The point that shows an input row; -1 where the page does not hold it. Rows are ascending. */
function pointOfRow(page, row) {
  if (!Number.isInteger(row) || row < 0) return -1;
  if (page.rows === null) return row < page.nRows ? row : -1;
  return placeIn(page.rows, row);
}

/** The place of a number in an ascending list; -1 where it is not in it. */
function placeIn(numbers, wanted) {
  let low = 0;
  let high = numbers.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] === wanted) return middle;
    if (numbers[middle] < wanted) low = middle + 1; else high = middle - 1;
  }
  return -1;
}

/** The UTC date of seconds since 1970, and the time if `withTime` and unless it is midnight. */
function dateText(seconds, withTime) {
  const date = new Date(1000 * seconds);
  if (Number.isNaN(date.getTime())) return `${seconds} s`;  // more than 270,000 years from 1970
  const [day, time] = date.toISOString().split("T");
  return withTime && !time.startsWith("00:00:00") ? `${day} ${time.slice(0, 8)}` : day;
}

/** A value as text; "" where unknown. */
function textOf(column, point) {
  const value = column.values[point];
  if (column.names !== null) return value < column.names.length ? column.names[value] : "";
  return numberText(column, value);
}

/** A number of a column as text; "" where unknown. */
function numberText(column, value) {
  if (Number.isNaN(value)) return "";
  if (column.kind === "date") return dateText(value, true);
  if (column.kind === "whole") return String(Math.round(value));
  if (column.digits === null) return String(Number(value.toPrecision(7)));
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e7) ? value.toPrecision(5) : value.toFixed(Math.min(column.digits, 6));
}

/** Percentiles (shares of 1) of the finite values at `points` (all where null), from at most 200,000 of them. */
function percentiles(values, shares, points = null) {
  const n = points === null ? values.length : points.length;
  const stride = Math.max(1, Math.floor(n / 200000));
  const sample = [];
  for (let i = 0; i < n; i += stride) {
    const value = values[points === null ? i : points[i]];
    if (Number.isFinite(value)) sample.push(value);
  }
  const sorted = Float64Array.from(sample).sort();
  return shares.map((share) => sorted[Math.round(share * (sorted.length - 1))] ?? 0);
}

/** Range that a few far points cannot stretch: percentiles 0.1 to 99.9 where all values span over 3 times that. */
function robustRange(values, points = null) {
  const [lowest, low, high, highest] = percentiles(values, [0, 0.001, 0.999, 1], points);
  if (highest === lowest) return [lowest - 0.5, lowest + 0.5];
  return high > low && high - low < (highest - lowest) / 3 ? [low, high] : [lowest, highest];
}
