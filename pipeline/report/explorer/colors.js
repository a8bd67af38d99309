// How points get their colours: one code for each point, and the colour of each code.

/** Classes by number of points; those after the last of the colours share one. */
function classKey(column, colors) {
  const n = column.names.length;
  const counts = new Uint32Array(n + 1);
  for (const code of column.values) counts[Math.min(code, n)]++;
  let shown = Array.from({length: n}, (_, i) => i).filter((i) => counts[i] > 0);
  if (shown.length > colors.length) {
    shown = shown.sort((a, b) => counts[b] - counts[a]).slice(0, colors.length - 1).sort((a, b) => a - b);
  }
  const entries = shown.map((code, i) => ({codes: [code], name: column.names[code] || "(empty)", count: counts[code],
    color: colors[i]}));
  const others = Array.from({length: n + 1}, (_, i) => i).filter((i) => counts[i] > 0 && !shown.includes(i));
  if (others.length > 0) {
    const name = others.every((code) => code === n) ? "unknown" : `${others.length} other classes`;
    const count = others.reduce((sum, code) => sum + counts[code], 0);
    entries.push({codes: others, name, count, color: null});
  }
  const entryOf = new Uint16Array(n + 1);
  entries.forEach((entry, e) => entry.codes.forEach((code) => { entryOf[code] = e; }));
  return {entries, codes: Uint16Array.from(column.values, (code) => entryOf[Math.min(code, n)])};
}

/**
 * 64 steps of a robust range (null without values), on a log scale where no value is negative and most of the positive
 * ones lie near the low end; zeros then have the lowest colour.
 */
function scaleKey(column, colorMap) {
  const [first, last] = percentiles(column.values, [0, 1]);
  const positive = first > 0 ? column.values : column.values.filter((value) => value > 0);
  const [low, median, high] = percentiles(positive, [0.01, 0.5, 0.99]);
  const log = first >= 0 && low > 0 && high / low > 10 && median - low < 0.1 * (high - low);
  const range = log ? [low, high] : colorRange(column.values);
  const place = log ? (v) => Math.log(v / range[0]) / Math.log(range[1] / range[0])
    : (v) => (v - range[0]) / (range[1] - range[0]);
  const codes = Uint16Array.from(column.values, (value) =>
    (Number.isNaN(value) ? 64 : Math.max(0, Math.min(63, Math.floor(place(value) * 64)))));
  const unknown = codes.reduce((sum, code) => sum + (code === 64), 0);
  const shown = unknown === codes.length ? null : first < last ? range : [first, last];
  return {range: shown, log, clipped: first < range[0] || last > range[1], unknown, codes, colors: colorMap};
}

/** The key of a column: {kind, codes, colors, ...}; `null` colours every point alike. */
function colorKey(column, page, dark) {
  const missing = dark ? "#5b6673" : "#b4bcc6";
  if (column === null) return {kind: "plain", codes: null, colors: [page.palette[dark ? 4 : 0]]};
  if (column.names !== null) {
    const key = classKey(column, page.classColors[Number(dark)]);
    key.entries.forEach((entry) => { entry.color ??= missing; });
    return {kind: "classes", ...key, colors: key.entries.map((entry) => entry.color)};
  }
  // The end of the colour map that is close to the page's colour is left out.
  const ends = dark ? [16, 63] : [0, 58];
  const colors = page.colorMap.map((_, i) => page.colorMap[Math.round(ends[0] + (i / 63) * (ends[1] - ends[0]))]);
  const key = scaleKey(column, colors);
  return {kind: "scale", ...key, colors: [...key.colors, missing]};
}
