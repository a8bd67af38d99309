// The explorer: its settings, and the changes of the picture that they cause. `Points` or `Server` holds the points.

const scaleOf = (domain, range) => Object.assign(
  (value) => range[0] + ((value - domain[0]) / (domain[1] - domain[0])) * (range[1] - range[0]), {domain: () => domain});

class Explorer {
  constructor(points) {
    this.points = points;
    this.box = byId("canvas");
    this.chosen = new Set();  // entries of the legend; empty means all
    this.selection = 0;  // the number of the selection; 0 is the empty one
    this.larger = 0;  // pixels to add to the radius of points
    this.names = [];
    byId("opacity").value = 100;
    this.row = -1;  // the row whose values are shown
    this.at = null;  // its position
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.fillMenus();
    this.listen();
  }

  fillMenus() {
    const {columns, components, ids} = this.points;
    const axes = columns.flatMap((column, i) => (column.role === "coordinate" ? [[i, column.label]] : []));
    fillMenu("x", axes, axes[0][0]);
    fillMenu("y", axes, axes[Math.min(1, axes.length - 1)][0]);
    fillMenu("color", [[-1, "nothing"], ...columns.map((column, i) => [i, column.label])],
      columns.findIndex((column) => column.role === "value"));
    fillMenu("search-in", [["row", "row"], ...(ids === null ? [] : [["id", ids]]),
      ...columns.flatMap((column, i) => (column.classes && column.role === "value" ? [[i, column.label]] : []))], "row");
    byId("component-menu").hidden = components.length < 2;
    fillMenu("component", [[-1, "all, side by side"], ...components], -1);
  }

  listen() {
    for (const id of ["x", "y", "component"]) byId(id).addEventListener("change", () => { this.at = null; this.fit(); });
    byId("component").addEventListener("change", () => this.limit());
    this.dark.addEventListener("change", () => this.recolor());
    listenToControls(this);
    this.box.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 400), ...this.pixelOf(event));
    }, {passive: false});
    followPointers(this);
    new ResizeObserver(() => { if (this.view) this.draw(); }).observe(this.box);
  }

  column(id) { return this.points.columns[Number(byId(id).value)] ?? null; }

  /** What the picture shows, and more, as a question about points. */
  question(more) {
    const [x, y, component, color] = ["x", "y", "component", "color"].map((id) => Number(byId(id).value));
    const [chosen, dark] = [[...this.chosen], Number(this.dark.matches)];
    return {x, y, component, color, chosen, dark, selection: this.selection, ...more};
  }

  ask(name, more) { return this.points.ask(name, this.question(more)); }

  // --- the view: [left, right, bottom, top]

  size() { return [this.box.clientWidth, this.box.clientHeight]; }

  scales() {
    const [[left, right, bottom, top], [width, height]] = [this.view, this.size()];
    return {x: scaleOf([left, right], [0, width]), y: scaleOf([bottom, top], [height, 0])};
  }

  /** Coordinates of a pixel. */
  valueAt(x, y) {
    const [[left, right, bottom, top], [width, height]] = [this.view, this.size()];
    return [left + (x / width) * (right - left), top - (y / height) * (top - bottom)];
  }

  pixelOf(event) {
    const box = this.box.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  async fit() {
    Object.assign(this, await this.ask("fit"));
    for (const id of ["x", "y"]) byId(`${id}-name`).textContent = this.column(id).label;
    await this.recolor();
  }

  /** Move the view by shares of its width and height. */
  pan(x, y) {
    const [left, right, bottom, top] = this.view;
    const [dx, dy] = [x * (right - left), y * (top - bottom)];
    this.view = [left + dx, right + dx, bottom + dy, top + dy];
    return this.draw();
  }

  /** Zoom about a pixel, by default the middle. */
  zoom(factor, x = this.box.clientWidth / 2, y = this.box.clientHeight / 2) {
    const [[u, v], [left, right, bottom, top]] = [this.valueAt(x, y), this.view];
    this.view = [u + (left - u) / factor, u + (right - u) / factor, v + (bottom - v) / factor, v + (top - v) / factor];
    return this.draw();
  }

  setStyle(larger, opacity) {
    byId("tile").style.opacity = opacity;
    if (larger === this.larger) return;
    this.larger = larger;
    this.draw();
  }

  async recolor() {
    this.key = await this.ask("key");
    const {names, entries} = this.key;
    this.names = names.map((name) => ({...name, color: entries[name.entry].color}));
    this.placedNames = [];
    drawLegend(this, this.column("color"), () => { this.draw(); this.limit(); });
    await this.draw();
  }

  /** Ask for a tile of the view; what changes meanwhile is asked for after it arrived. */
  async draw() {
    this.place();
    this.stale = true;
    if (this.drawing) return this.drawing;
    this.drawing = (async () => {
      while (this.stale) {
        this.stale = false;
        const {view} = this;
        const tile = await this.points.tile(this.question({part: view, size: this.size(), larger: this.larger}));
        tile.view = view;
        byId("tile").replaceChildren(tile);
        byId("loading").hidden = true;  // also the message of an earlier error
        this.place();
        showNames(this, this.stale || this.dragging);
      }
    })().catch((error) => this.fail(error)).finally(() => { this.drawing = null; });
    return this.drawing;
  }

  /** Put the last tile and the ticks where they belong in the view. */
  place() {
    const {x, y} = this.scales();
    const tile = byId("tile").firstChild;
    if (tile) {
      const [left, right, bottom, top] = tile.view;
      Object.assign(tile.style, {left: `${x(left)}px`, top: `${y(top)}px`, width: `${x(right) - x(left)}px`,
        height: `${y(bottom) - y(top)}px`});
    }
    this.drawAxes();
    byId("tip").hidden = true;
    this.mark();
  }

  drawAxes() {
    const {x, y} = this.scales();
    drawTicks(byId("x-ticks"), this.moved ? null : x, false);
    drawTicks(byId("y-ticks"), this.moved ? null : y, true);
    showNames(this, true);
  }

  /** Where something is drawn, in pixels. */
  drawnMap() {
    const map = new DrawnMap(...this.size());
    this.points.addDrawn(map, byId("tile").firstChild, this.scales(), this.question());
    return map.finish();
  }

  /** The tile of the view and its opacity. */
  async picture() {
    await this.drawing;
    return {image: byId("tile").firstChild, opacity: Number(byId("opacity").value) / 100};
  }

  mark() {
    const {x, y} = this.scales();
    const [left, top] = this.at === null ? [-99, -99] : [x(this.at[0]), y(this.at[1])];
    byId("mark").setAttribute("cx", left);
    byId("mark").setAttribute("cy", top);
    return [left, top];
  }

  /** Draw the outline of a selection that is being made. */
  outline(corners) {
    const {x, y} = this.scales();
    byId("outline").setAttribute("points", corners.map(([u, v]) => `${x(u)},${y(v)}`).join(" "));
  }

  // --- rows

  /** Show the row under the pointer; one question at a time. */
  async hover(pixel) {
    [this.pointer, this.above] = [pixel, true];
    if (this.asking) return;
    this.asking = true;
    try {
      while (this.pointer) {
        const at = this.pointer;
        this.pointer = null;
        const record = await this.near(at);
        if (record === null || !this.above) byId("tip").hidden = true; else this.show(record);
      }
    } catch (error) { this.fail(error); } finally { this.asking = false; }
  }

  /** The shown row within 8 pixels. */
  near(pixel) {
    const [reach, origin] = [this.valueAt(8, 8), this.valueAt(0, 0)];
    return this.ask("near", {at: this.valueAt(...pixel), reach: [reach[0] - origin[0], origin[1] - reach[1]]});
  }

  show(record) {
    [this.row, this.at] = [record.row, record.at];
    showValues(record, this.points.imageOf(record.row), this.mark(), this.box.clientWidth);
  }

  /** Show a row and say so; the view moves to it where it lies outside. */
  async goTo(record) {
    const [[u, v], [left, right, bottom, top]] = [record.at, this.view];
    if (u < left || u > right || v < bottom || v > top) {
      await this.pan((u - left) / (right - left) - 0.5, (v - bottom) / (top - bottom) - 0.5);
    }
    this.show(record);
    byId("spoken").textContent = byId("tip-text").textContent;
  }

  /** Go from the shown row to another one; after the steps before, because keys can be faster than answers. */
  walk(toward) {
    this.walking = (this.walking ?? Promise.resolve()).catch(() => {}).then(async () => {
      const record = await this.ask("row", {from: this.row, ...(this.row < 0 && !toward.by ? {by: 1} : toward)});
      if (record !== null) await this.goTo(record);
    });
    return this.walking;
  }

  step(by) { return this.walk({by}); }

  moveTo(toward) { return this.walk({toward}); }

  async search() {
    const what = {in: byId("search-in").value, text: byId("search-text").value.trim()};
    const {count, hidden, view, record} = await this.ask("search", what);
    showSearchResult(count, hidden);
    if (count === 0) return;
    this.view = view;
    await this.select("replace", what);
    if (record !== null) await this.goTo(record);
  }

  // --- the selection

  /** Change the selection by the rows that are found with a polygon, a row or a search; one change at a time. */
  select(change, what) {
    this.changing = (this.changing ?? Promise.resolve()).catch(() => {}).then(async () => {
      const found = await this.ask("select", {change, ...what});
      this.selection = found.selection;
      showTable(found.head, found.rows, found.count);
      showSummary(found);
      await this.draw();
    });
    return this.changing;
  }

  async summarize() { if (this.selection > 0) showSummary(await this.ask("summary")); }

  selectInView() {
    const [left, right, bottom, top] = this.view;
    this.select("replace", {polygon: [left, bottom, right, bottom, right, top, left, top]});
  }

  async toggleSelected() {
    await this.walking;
    if (this.row >= 0) await this.select("toggle", {row: this.row});
  }

  /** Select the row at a pixel, or change the selection by it. */
  async click(pixel, change) {
    const record = await this.near(pixel);
    if (record === null) return;
    this.show(record);
    await this.select(change, {row: record.row});
  }

  /** Take the rows that are no longer shown out of the selection. */
  limit() { if (this.selection > 0) this.select("limit"); }

  clear() { this.select("clear"); }

  save() { this.points.save(this.question()); }

  fail(error) { fail(this.points.problem(error)); }
}

function fail(message) {
  Object.assign(byId("loading"), {hidden: false, textContent: message});
  byId("loading").setAttribute("role", "alert");
}

async function start() {
  const explorer = new Explorer(openPoints(JSON.parse(byId("content").textContent)));
  addEventListener("unhandledrejection", (event) => explorer.fail(event.reason));
  showTable([], [], 0);
  await explorer.fit();
  document.documentElement.dataset.ready = "true";
  globalThis.explorer = explorer;  // for the console, and for tests
}

start().catch((error) => { fail(`The picture cannot be drawn: ${error.message}.`); throw error; });
