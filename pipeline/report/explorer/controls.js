// Menus, legend, search and keys.

/** Fill a menu; the values are numbers of columns, -1 for the first entry where it has a name. */
function fillMenu(id, entries, chosen) {
  byId(id).replaceChildren(...entries.map(([value, text]) => Object.assign(document.createElement("option"),
    {value, textContent: text, selected: value === chosen})));
}

function swatch(color) {
  const element = document.createElement("i");
  element.style.background = color;
  return element;
}

/** The key of the colours; `toggle(entry)` is called when a class is pressed. */
function showLegend(column, key, chosen, toggle) {
  byId("legend-title").textContent = column === null ? "" : column.label;
  byId("legend-help").hidden = key.kind !== "classes";
  if (key.kind === "plain") { byId("legend").replaceChildren(); return; }
  if (key.kind === "scale") { byId("legend").replaceChildren(scaleLegend(column, key)); return; }
  byId("legend").replaceChildren(...key.entries.map((entry, e) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(swatch(entry.color), cellOf("span", entry.name), cellOf("small", entry.count.toLocaleString("en")));
    button.setAttribute("aria-pressed", String(chosen.has(e)));
    button.addEventListener("click", () => toggle(e));
    return button;
  }));
}

/** The colours of the bar of a scale: all of them, or one, twice, where the values have no range. */
function barColors({range, colors}) {
  if (range !== null && range[0] < range[1]) return colors.slice(0, 64);
  return Array(2).fill(colors[range === null ? 64 : 32]);
}

/** A number with three digits; large ones have commas, very large ones a power of ten. */
function shortNumber(value) {
  const [size, short] = [Math.abs(value), Number(value.toPrecision(3))];
  return (size >= 1e3 && size < 1e9 ? short.toLocaleString("en") : short.toString()).replace(/-/g, "−");
}

function scaleLegend(column, key) {
  const box = document.createElement("div");
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.style.background = `linear-gradient(to right, ${barColors(key).join(",")})`;
  const ends = document.createElement("div");
  ends.className = "ends";
  const [low, high] = key.range ?? [0, 0];
  const least = key.log ? 0 : 1e-3 * (high - low);
  const text = (value) => (column.kind === "date" ? dateText(value, false)
    : shortNumber(Math.abs(value) < least ? 0 : value));
  const texts = key.range === null ? ["no values"] : low < high ? [text(low), text(high)] : [`all ${text(low)}`];
  ends.append(...texts.map((end) => cellOf("span", end)));
  const notes = [key.log ? "log scale" : "", key.clipped ? "values beyond have the colour of the end" : "",
    key.unknown > 0 ? `${key.unknown.toLocaleString("en")} rows without a value are grey` : ""];
  box.append(bar, ends, cellOf("small", notes.filter(Boolean).join("; ")));
  return box;
}

/** The controls; `explorer` does what they ask for. */
function listenToControls(explorer) {
  const clicks = {save: () => explorer.save(), clear: () => explorer.clear(), "in-view": () => explorer.selectInView(),
    "zoom-in": () => explorer.zoom(1.4), "zoom-out": () => explorer.zoom(1 / 1.4), fit: () => explorer.fit()};
  for (const [id, action] of Object.entries(clicks)) byId(id).addEventListener("click", action);
  byId("search").addEventListener("submit", (event) => { event.preventDefault(); explorer.search(); });
  document.addEventListener("keydown", keyActions(explorer));
  byId("color").addEventListener("change", () => { explorer.chosen.clear(); explorer.recolor(); explorer.summarize(); });
  byId("show-names").addEventListener("change", () => showNames(explorer));
  byId("menu-open").addEventListener("click", () =>
    byId("menu-open").setAttribute("aria-expanded", String(byId("menu").classList.toggle("open"))));
  document.addEventListener("pointerdown", ({target}) => {
    for (const open of document.querySelectorAll("#menu > details[open]")) if (!open.contains(target)) open.open = false;
    if (!target.closest("header") && byId("menu").classList.contains("open")) byId("menu-open").click();
  });
  for (const id of ["larger", "opacity"]) {
    byId(id).addEventListener("input", () => explorer.setStyle(Number(byId("larger").value), Number(byId("opacity").value) / 100));
  }
  byId("save-picture").addEventListener("click", () => savePicture(explorer));
}

/** The legend of an explorer; `limit` is called after classes were pressed. */
function drawLegend(explorer, column, limit) {
  showLegend(column, explorer.key, explorer.chosen, (entry) => {
    if (!explorer.chosen.delete(entry)) explorer.chosen.add(entry);
    const focused = [...byId("legend").children].indexOf(document.activeElement);
    drawLegend(explorer, column, limit);
    byId("legend").children[focused]?.focus();
    limit();
  });
}

/** Say how many rows a search has found; `hidden` of them are not shown. */
function showSearchResult(count, hidden) {
  const missing = hidden > 0 ? "Found, but hidden by the chosen component or classes." : "Not found among the rows of this page.";
  byId("search-result").textContent = count === 0 ? missing : `${count.toLocaleString("en")} found.`;
}

/** Whether a control or a part that scrolls needs a key itself. */
function isTaken(event) {
  const {target, key} = event;
  if (target.closest("input[type=search], input[type=range], select")) return true;
  if (key === "Enter" || key === " ") return target.closest("button, summary, a, input") !== null;
  return key.startsWith("Arrow") && target.closest("input, #table, #point") !== null;
}

/** What the keys do. */
function keyActions(explorer) {
  const step = {ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1]};
  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTaken(event)) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const actions = {
      "+": () => explorer.zoom(1.4), "=": () => explorer.zoom(1.4), "-": () => explorer.zoom(1 / 1.4),
      0: () => explorer.fit(), n: () => explorer.step(1), p: () => explorer.step(-1),
      Enter: () => explorer.toggleSelected(), " ": () => explorer.toggleSelected(),
      v: () => explorer.selectInView(), Escape: () => explorer.clear(),
    };
    if (key in step) {
      if (event.shiftKey) explorer.moveTo(key); else explorer.pan(...step[key]);
    } else if (key in actions) actions[key](); else return;
    event.preventDefault();
  };
}
