// The explorer of `lle explore`: the server draws all points and returns their rows.

const scaleOf = (domain, range) => Object.assign(
  (value) => range[0] + ((value - domain[0]) / (domain[1] - domain[0])) * (range[1] - range[0]), {domain: () => domain});

class ServedExplorer {
  constructor(page) {
    this.page = page;
    this.plot = this;  // the shared controls call explorer.plot
    this.box = byId("canvas");
    this.chosen = new Set();  // entries of the legend; empty means all
    this.selection = 0;  // the server's number of the selection; 0 is the empty one
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
    const {columns, components, ids} = this.page;
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

  // --- the server

  query(more = {}) {
    const menus = ["x", "y", "component", "color"].map((id) => [id, byId(id).value]);
    return new URLSearchParams([...menus, ["chosen", [...this.chosen].join()], ["dark", Number(this.dark.matches)],
      ["selection", this.selection], ...Object.entries(more)]);
  }

  async ask(name, more) {
    const response = await fetch(`${name}?${this.query(more)}`);
    if (!response.ok) throw new Error(await response.text());
    return response.json();
  }

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
    Object.assign(this, await this.ask("fit.json"));
    for (const id of ["x", "y"]) byId(`${id}-name`).textContent = this.page.columns[Number(byId(id).value)].label;
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
    this.key = await this.ask("key.json");
    const {names, entries} = this.key;
    this.names = names.map((name) => ({...name, color: entries[name.entry].color}));
    this.placedNames = [];
    drawLegend(this, this.page.columns[Number(byId("color").value)] ?? null, () => { this.draw(); this.limit(); });
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
        const [view, tile] = [this.view, Object.assign(new Image(), {alt: "", draggable: false})];
        tile.src = `tile.png?${this.query({part: view.join(), size: this.size().join(), larger: this.larger})}`;
        await tile.decode();
        tile.view = view;
        byId("tile").replaceChildren(tile);
        byId("loading").hidden = true;  // also the message of an earlier error
        this.place();
        showNames(this);
      }
    })().catch(fail).finally(() => { this.drawing = null; });
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
    const axis = this.moved ? null : {middle: 0, half: 1};
    drawTicks(byId("x-ticks"), x, axis, false);
    drawTicks(byId("y-ticks"), y, axis, true);
    showNames(this, true);
  }

  scalesNow() { return this.scales(); }

  /** Where something is drawn, in pixels. */
  drawnMap() {
    const [width, height] = this.size();
    const [map, context] = [new DrawnMap(width, height), new OffscreenCanvas(width, height).getContext("2d")];
    if (byId("tile").firstChild) context.drawImage(byId("tile").firstChild, 0, 0, width, height);
    const {data} = context.getImageData(0, 0, width, height);
    for (let i = 3; i < data.length; i += 4) if (data[i] > 0) map.add(((i - 3) / 4) % width, Math.floor((i - 3) / 4 / width));
    return map.finish();
  }

  async picture() { return {image: byId("tile").firstChild, opacity: Number(byId("opacity").value) / 100}; }

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
    } catch (error) { fail(error); } finally { this.asking = false; }
  }

  /** The shown row within 8 pixels. */
  near(pixel) {
    const [reach, origin] = [this.valueAt(8, 8), this.valueAt(0, 0)];
    return this.ask("near.json", {at: this.valueAt(...pixel).join(), reach: [reach[0] - origin[0], origin[1] - reach[1]].join()});
  }

  show(record) {
    [this.row, this.at] = [record.row, record.at];
    const [height, width] = this.page.imageShape ?? [0, 0];
    const image = this.page.imageShape === null ? null
      : {url: `image.png?row=${record.row}`, x: 0, y: 0, width, height, full: [width, height]};
    showValues(record.row, record.values, record.tip, image, this.mark(), this.box.clientWidth);
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
      const record = await this.ask("row.json", {from: this.row, ...(this.row < 0 && !toward.by ? {by: 1} : toward)});
      if (record !== null) await this.goTo(record);
    });
    return this.walking;
  }

  step(by) { return this.walk({by}); }

  moveTo(toward) { return this.walk({toward}); }

  async search() {
    const what = {in: byId("search-in").value, text: byId("search-text").value.trim()};
    const {count, hidden, view, record} = await this.ask("search.json", what);
    showSearchResult(count, hidden, "Not found among the rows with coordinates.");
    if (count === 0) return;
    this.view = view;
    await this.select("replace", what);
    if (record !== null) await this.goTo(record);
  }

  // --- the selection

  /** Change the selection by the rows that the server finds with a polygon, a row or a search; one change at a time. */
  select(change, what) {
    this.changing = (this.changing ?? Promise.resolve()).catch(() => {}).then(async () => {
      const found = await this.ask("select.json", {change, ...what});
      this.selection = found.selection;
      showTable(found.head, found.rows, found.count);
      showSummary(found);
      await this.draw();
    });
    return this.changing;
  }

  async summarize() { if (this.selection > 0) showSummary(await this.ask("summary.json")); }

  selectInView() {
    const [left, right, bottom, top] = this.view;
    this.select("replace", {polygon: [left, bottom, right, bottom, right, top, left, top].join()});
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

  save() {
    Object.assign(document.createElement("a"), {href: `selection.csv?${this.query()}`, download: "selection.csv"}).click();
  }
}

function fail(error) {
  const note = byId("loading");
  note.hidden = false;
  note.textContent = `No answer from lle explore: ${error.message}. If the command has ended, start it again and open its new address.`;
  note.setAttribute("role", "alert");
}

async function start() {
  const explorer = new ServedExplorer(JSON.parse(byId("content").textContent));
  showTable([], [], 0);
  await explorer.fit();
  document.documentElement.dataset.ready = "true";
  globalThis.explorer = explorer;  // for the console, and for tests
}

addEventListener("unhandledrejection", (event) => fail(event.reason));
start();
