// The explorer page: its settings, and the changes of the picture that they cause.

class Explorer {
  constructor(page) {
    this.page = page;
    this.coordinates = page.columns.flatMap((column, i) => (column.role === "coordinate" ? [i] : []));
    this.component = page.columns.find((column) => column.role === "component") ?? null;
    this.groups = this.component === null ? [] : pointsByComponent(this.component.values, this.component.names.length);
    this.chosen = new Set();  // entries of the legend; empty means all
    this.names = [];
    this.point = -1;  // the point whose values are shown
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.plot = new Plot(byId("canvas"), page);
    this.fillMenus();
    this.listen();
  }

  fillMenus() {
    const {columns} = this.page;
    const axes = this.coordinates.map((i) => [i, columns[i].label]);
    fillMenu("x", axes, this.coordinates[0]);
    fillMenu("y", axes, this.coordinates[Math.min(1, this.coordinates.length - 1)]);
    const first = columns.findIndex((column) => column.role === "value");
    fillMenu("color", [[-1, "nothing"], ...columns.map((column, i) => [i, column.label])], first);
    const idEntry = idLabel(this.page).map((label) => [columns.length, label]);
    fillMenu("search-in", [[-1, "row"], ...idEntry, ...columns.flatMap((column, i) =>
      (column.names !== null && column.role === "value" ? [[i, column.label]] : []))], -1);
    byId("component-menu").hidden = this.groups.length < 2;
    fillMenu("component", [[-1, "all, side by side"], ...this.groups.slice(0, 100).map((points, g) =>
      [g, `${this.component.names[this.component.values[points[0]]]}: ${points.length.toLocaleString("en")} rows`])], -1);
  }

  listen() {
    for (const id of ["x", "y"]) byId(id).addEventListener("change", () => this.redraw());
    byId("component").addEventListener("change", () => this.redraw().then(() => this.plot.fit()));
    listenToControls(this);
    for (const mode of document.getElementsByName("mode")) {
      mode.addEventListener("change", () => this.plot.setMode(mode.value));
    }
    this.plot.on("pointover", (point) => this.showPoint(point));
    this.plot.on("pointout", () => { byId("tip").hidden = true; });
    for (const event of ["select", "deselect"]) this.plot.on(event, () => this.summarize());
    this.plot.onView = () => { byId("tip").hidden = true; this.drawAxes(); showNames(this, true); };
    this.plot.on("view", this.plot.onView);
    this.dark.addEventListener("change", () => { this.plot.setTheme(this.dark.matches); this.recolor(); });
    new ResizeObserver(() => this.resize()).observe(byId("canvas"));  // also where a scroll bar takes its share
    addEventListener("resize", () => this.resize());
  }

  resize() {
    this.plot.fitBuffer();
    clearTimeout(this.resizing);
    if (this.placed && this.plot.size() !== this.drawnSize) this.resizing = setTimeout(() => this.redraw(), 200);
  }

  column(id) { return this.page.columns[Number(byId(id).value)] ?? null; }

  save() { saveSelection(this.page, this.sorted()); }

  summarize() { showSelection(this.page, this.sorted(), this.column("color")); }

  /** Selected points by row. */
  sorted() { return [...this.plot.selected()].sort((a, b) => a - b); }

  /** The group of the one component that is shown; null where all are. */
  group() { return this.groups[Number(byId("component").value)] ?? null; }

  positions() {
    const [x, y] = [this.column("x").values, this.column("y").values];
    if (this.group() !== null) return fillView(x, y, this.group());
    return this.groups.length > 1 ? standSideBySide(x, y, this.groups, this.plot.aspect()) : fillView(x, y);
  }

  async redraw() {
    byId("x-name").textContent = this.column("x").label;
    byId("y-name").textContent = this.column("y").label;  // before drawing, because it takes a share of the width
    this.drawnSize = this.plot.size();
    this.placed = this.positions();
    await this.recolor(false);
  }

  async recolor(keepIndex = true) {
    const column = this.column("color");
    this.key = colorKey(column, this.page, this.dark.matches);
    drawLegend(this, column, () => { this.filter(); showNames(this); });
    await this.plot.draw(this.placed, this.key, keepIndex);
    const pieces = this.group() !== null ? [this.group()] : this.groups.length > 1 ? this.groups : [null];
    this.names = this.key.kind === "classes" ? placesOfNames(this.key, this.placed, pieces) : [];
    this.drawAxes();
    this.filter();
    showNames(this);
  }

  /** Show the chosen component and classes. */
  filter() {
    const group = this.group();
    if (this.chosen.size === 0) { this.plot.show(group === null ? null : Array.from(group)); return; }
    const points = group === null ? Array.from({length: this.page.nRows}, (_, i) => i) : Array.from(group);
    this.plot.show(points.filter((point) => this.chosen.has(this.key.codes[point])));
  }

  drawAxes() {
    const {x, y} = this.plot.scales;
    drawTicks(byId("x-ticks"), x, this.placed.axes?.x ?? null, false);
    drawTicks(byId("y-ticks"), y, this.placed.axes?.y ?? null, true);
  }

  /** Where points are drawn, in pixels. */
  drawnMap() {
    const [map, {x, y}] = [new DrawnMap(this.plot.canvas.clientWidth, this.plot.canvas.clientHeight), this.plot.scales];
    const {x: u, y: v} = this.placed;
    for (let i = 0; i < this.page.nRows; i++) if (this.plot.isVisible(i)) map.add(x(u[i]), y(v[i]));
    return map.finish();
  }

  async picture() { return {image: await createImageBitmap(this.plot.library.export()), opacity: 1}; }

  /** The values of a point, beside the picture and at the point. */
  showPoint(point) {
    if (point < 0) return;
    this.point = point;
    const values = [...idLabel(this.page).map((label) => [label, idOf(this.page, point)[0]]),
      ...this.page.columns.map((column) => [column.label, textOf(column, point)])];
    const named = this.page.columns.find((column) => column.role === "value");
    const tip = [...idOf(this.page, point), ...(named ? [textOf(named, point) || "unknown"] : [])];
    showValues(rowOf(this.page, point), values, tip, imageOf(this.page, point), this.plot.place(point),
      this.plot.canvas.clientWidth);
  }

  /** Show a point and say so; the view moves to it where it lies outside. */
  goTo(point) {
    if (point < 0) return;
    this.plot.reveal(point);
    this.plot.mark(point);
    this.showPoint(point);
    byId("spoken").textContent = byId("tip-text").textContent;
  }

  step(by) {
    let point = this.point < 0 && by < 0 ? 0 : this.point;
    do point = (point + by + this.page.nRows) % this.page.nRows;
    while (!this.plot.isVisible(point) && point !== this.point);
    this.goTo(point);
  }

  moveTo(direction) { this.goTo(this.point < 0 ? 0 : this.plot.neighbor(this.point, direction)); }

  toggleSelected() {
    if (this.point < 0) return;
    const selected = new Set(this.plot.selected());
    if (!selected.delete(this.point)) selected.add(this.point);
    if (selected.size === 0) this.plot.clear(); else this.plot.select([...selected]);
  }

  async search() {
    const points = findPoints(this.page, Number(byId("search-in").value), byId("search-text").value);
    const found = points.filter((point) => this.plot.isVisible(point));
    showSearchResult(found.length, points.length - found.length,
      this.page.nRows < this.page.nInput ? "Not on this page, which does not hold all rows." : "Not found.");
    if (found.length === 0) return;
    this.plot.select(found);
    await this.plot.zoomTo(found);
    if (found.length === 1) this.goTo(found[0]);
  }
}

async function start() {
  const page = decodePage(JSON.parse(byId("content").textContent));
  if (page.nRows === 0) { fail("No row has coordinates, so there is nothing to show."); return; }
  const explorer = new Explorer(page);
  explorer.plot.setTheme(explorer.dark.matches);
  await explorer.redraw();
  explorer.summarize();
  byId("loading").remove();
  document.documentElement.dataset.ready = "true";
  globalThis.explorer = explorer;  // for the console, and for tests
}

function fail(message) {
  byId("loading").textContent = message;
  byId("loading").setAttribute("role", "alert");
}

start().catch((error) => {
  fail(`The picture cannot be drawn: ${error.message}. It needs a browser with WebGL; index.html needs none.`);
  throw error;
});
