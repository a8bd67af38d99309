// Ticks along the axes if positions are values, and the names of classes in the picture.

/** Round numbers that part [low, high] into 3 to 7 steps. */
function roundTicks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  const first = Math.ceil(low / step);
  const n = Math.floor(high / step) - first + 1;
  return Array.from({length: Math.max(0, Math.min(n, 20))}, (_, i) => ({value: (first + i) * step,
    text: ((first + i) * step).toFixed(Math.min(digits, 10))}));
}

/** Draw the ticks of one axis into its element; `axis` turns positions into values, null leaves it empty. */
function drawTicks(element, scale, axis, vertical) {
  const marks = [];
  if (axis !== null) {
    const [low, high] = scale.domain().map((position) => axis.middle + position * axis.half);
    for (const tick of roundTicks(low, high)) {
      const mark = document.createElement("span");
      mark.textContent = tick.text.replace("-", "−");
      mark.style[vertical ? "top" : "left"] = `${scale((tick.value - axis.middle) / axis.half)}px`;
      marks.push(mark);
    }
  }
  element.replaceChildren(...marks);
}

/** Where the names of classes stand: medians of the positions of their points among `points` (null: all). */
function placeNames(key, positions, points) {
  const members = key.entries.map(() => []);
  const n = points === null ? positions.x.length : points.length;
  for (let i = 0; i < n; i++) {
    const point = points === null ? i : points[i];
    members[key.codes[point]].push(point);
  }
  return key.entries.flatMap((entry, e) => (members[e].length === 0 || entry.codes.length > 1 ? [] : [{entry: e,
    name: entry.name, count: entry.count, x: percentiles(positions.x, [0.5], members[e])[0], y: percentiles(positions.y, [0.5], members[e])[0]}]));
}

/** Draw names at their places; a name that would cover that of a larger class is left out until the view parts them. */
function drawNames(element, names, scales, chosen) {
  const shown = names.filter((name) => chosen.size === 0 || chosen.has(name.entry)).sort((a, b) => b.count - a.count);
  element.replaceChildren(...shown.map((name) => {
    const label = cellOf("span", name.name);
    label.style.left = `${scales.x(name.x)}px`;
    label.style.top = `${scales.y(name.y)}px`;
    return label;
  }));
  const boxes = [];
  const width = element.parentElement.clientWidth;
  for (const label of [...element.children]) {
    const half = label.offsetWidth / 2;
    const at = parseFloat(label.style.left);
    if (at > -half && at < width + half) label.style.left = `${Math.max(half, Math.min(at, width - half))}px`;  // no name is cut off
    const box = label.getBoundingClientRect();
    if (boxes.some((b) => box.left < b.right && b.left < box.right && box.top < b.bottom && b.top < box.bottom)) label.remove();
    else boxes.push(box);
  }
}
