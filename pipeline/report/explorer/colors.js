// How points get their colours: one code for each point, and the colour of each code.

/** The codes of points by a key of report/point_colors.py: classes with a colour, or steps of a scale; 64 is unknown. */
function codesOf(values, codeOf, {kind, range, log}) {
  if (kind === "classes") return Uint8Array.from(values, (code) => codeOf[Math.min(code, codeOf.length - 1)]);
  const [low, high] = range ?? [0, 0];
  const place = log ? (v) => Math.log(v / low) / Math.log(high / low) : (v) => (v - low) / (high - low);
  const step = low < high ? (v) => Math.max(0, Math.min(63, Math.floor(64 * place(v)))) : () => 32;
  return Uint8Array.from(values, (value) => (Number.isNaN(value) ? 64 : step(value)));
}

/** The key of a column, with the codes of the points; `null` colours every point alike. */
function colorKey(column, page, dark) {
  const {keys, codeOf} = column ?? page;
  return {...keys[dark], codes: column === null ? null : codesOf(column.values, codeOf, keys[dark])};
}
