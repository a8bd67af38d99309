// Ticks along the axes if positions are values.

/** Round numbers that part [low, high] into 3 to 7 steps. */
function roundTicks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  const first = Math.ceil(low / step);
  const n = Math.floor(high / step) - first + 1;
  const shown = (value) => (digits > 10 ? String(Number(value.toPrecision(14))) : value.toFixed(digits));
  return Array.from({length: Math.max(0, Math.min(n, 20))}, (_, i) => (first + i) * step)
    .map((value) => ({value, text: shown(value)}));
}

/** Draw the ticks of one axis into its element; a scale of null leaves it empty. */
function drawTicks(element, scale, vertical) {
  const ticks = scale === null ? [] : roundTicks(...scale.domain());
  element.replaceChildren(...ticks.map((tick) => {
    const mark = cellOf("span", tick.text.replace("-", "−"));
    mark.style[vertical ? "top" : "left"] = `${scale(tick.value)}px`;
    return mark;
  }));
}
