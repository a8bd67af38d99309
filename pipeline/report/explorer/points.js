// The points of a page that holds them itself. It answers the questions that `lle explore` sends to its server.

const FADED = 0.2;  // opacity of points beside selected ones, as a share of their own
const TOWARD = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
/** How a selection changes: whether a point is in it then, by whether it was and whether it is one of the named points. */
const CHANGES = {replace: (was, is) => is, add: (was, is) => was | is, remove: (was, is) => was & ~is,
  toggle: (was, is) => was ^ is, limit: (was, is) => was & is, clear: () => 0};

/** Diameter in pixels and opacity of points, by their number. */
function pointStyle(n) {
  if (n <= 2000) return {size: 7, opacity: 0.9};
  if (n <= 20000) return {size: 4, opacity: 0.8};
  if (n <= 200000) return {size: 2.5, opacity: 0.6};
  return {size: 1, opacity: 0.6};  // one pixel each
}

/** Pixels [x, y, share that is covered] of a disc of this diameter. */
function discOf(size) {
  const reach = Math.ceil(size / 2);
  const sides = Array.from({length: 2 * reach + 1}, (_, i) => i - reach);
  return sides.flatMap((y) => sides.map((x) => [x, y, Math.min(1, size / 2 + 0.5 - Math.hypot(x, y))]))
    .filter((pixel) => pixel[2] > 0);
}

/** Draw a colour [red, green, blue] over the pixel at a place of RGBA data. */
function blend(data, at, color, opacity) {
  const below = (data[at + 3] / 255) * (1 - opacity);
  for (let i = 0; i < 3; i++) data[at + i] = (opacity * color[i] + below * data[at + i]) / (opacity + below);
  data[at + 3] = 255 * (opacity + below);
}

class Points {
  constructor(page) {
    if (page.nRows === 0) throw new Error("no row has coordinates, so there is nothing to show");
    const component = page.columns.find((column) => column.role === "component");
    this.groups = component ? pointsByComponent(component.values, component.names.length) : [];
    const nonempty = [...this.groups.keys()].filter((code) => this.groups[code].length > 0);
    const rows = (code) => `${this.groups[code].length.toLocaleString("en")} rows`;
    this.components = nonempty.slice(0, 100).map((code) => [code, `${component.names[code]}: ${rows(code)}`]);
    Object.assign(this, {page, columns: page.columns, componentOf: component?.values, ids: idLabel(page)[0] ?? null});
    this.order = randomOrder(page.nRows);
    this.isSelected = new Uint8Array(page.nRows);
    this.held = {};
  }

  /** What `compute` gave for this name and key last, else what it gives now. */
  hold(name, key, compute) {
    if (this.held[name]?.key !== key) this.held[name] = {key, value: compute()};
    return this.held[name].value;
  }

  /** {x, y, view}: positions of all points, and the part of the picture that is shown first. */
  layout({x, y, component}) {
    const [u, v] = [this.columns[x].values, this.columns[y].values];
    return this.hold("layout", `${[x, y, component]}`, () => (this.isMoved(component)
      ? standSideBySide(u, v, this.groups.filter((points) => points.length > 0))
      : {x: u, y: v, view: viewOf(u, v, this.groups[component])}));
  }

  isMoved(component) { return component < 0 && this.components.length > 1; }

  colors({color, dark}) {
    return this.hold("colors", `${[color, dark]}`, () => colorKey(this.columns[color] ?? null, this.page, dark));
  }

  /** A function of a point: whether it is of the chosen component and classes. */
  shows(question) {
    const [{codes}, chosen, {component}] = [this.colors(question), new Set(question.chosen), question];
    return (point) => (component < 0 || this.componentOf[point] === component)
      && (chosen.size === 0 || chosen.has(codes[point]));
  }

  /** The ascending points that a function of a point holds for. */
  those(holds) {
    const found = [];
    for (let point = 0; point < this.page.nRows; point++) if (holds(point)) found.push(point);
    return found;
  }

  // --- answers

  async ask(name, question) { return this[name](question); }

  fit(question) { return {view: this.layout(question).view, moved: this.isMoved(question.component)}; }

  key(question) {
    const [key, {component}] = [this.colors(question), question];
    const pieces = this.isMoved(component) ? this.groups.filter((points) => points.length > 0) : [this.groups[component] ?? null];
    return {...key, names: key.kind === "classes" ? placesOfNames(key, this.layout(question), pieces) : []};
  }

  /** The nearest shown point within 1 of a position; the distances along the axes are in units of `reach`. */
  near({at, reach, ...question}) {
    const {x, y} = this.layout(question);
    return this.nearest(question, (point) => Math.hypot((x[point] - at[0]) / reach[0], (y[point] - at[1]) / reach[1]), 1);
  }

  row({from, by, toward, ...question}) {
    const [{x, y, view}, start] = [this.layout(question), pointOfRow(this.page, from)];
    if (toward) {
      const [dx, dy] = TOWARD[toward];
      return this.nearest(question, (point) => {
        const [u, v] = [(x[point] - x[start]) / (view[1] - view[0]), (y[point] - y[start]) / (view[3] - view[2])];
        const along = u * dx + v * dy;
        return along > 0 && Math.abs(u * dy - v * dx) <= along ? Math.hypot(u, v) : Infinity;
      }, Infinity);
    }
    const [first, n, shows] = [start < 0 && by < 0 ? 0 : start, this.page.nRows, this.shows(question)];
    for (let i = 1; i <= n; i++) {
      const point = (first + by * i + n) % n;
      if (shows(point)) return this.record(point, question);
    }
    return null;
  }

  search(question) {
    const [all, shows] = [this.find(question), this.shows(question)];
    const found = all.filter(shows);
    const record = found.length === 1 ? this.record(found[0], question) : null;
    return {count: found.length, hidden: all.length - found.length, view: this.around(found, question), record};
  }

  select({change, polygon, row, ...question}) {
    const named = new Uint8Array(this.page.nRows);
    const one = pointOfRow(this.page, row);
    const shows = this.shows(question);
    const points = polygon ? this.inside(polygon, question) : one >= 0 ? [one]
      : "text" in question ? this.find(question).filter(shows) : change === "limit" ? this.those(shows) : [];
    for (const point of points) named[point] = 1;
    this.isSelected = this.isSelected.map((was, point) => CHANGES[change](was, named[point]));
    const selected = this.selected();
    return {selection: Number(selected.length > 0), ...tableOf(this.page, selected), ...this.summary(question)};
  }

  summary({color}) { return summaryOf(this.page, this.selected(), this.columns[color]); }

  save() { download(new Blob([toCsv(this.page, this.selected())], {type: "text/csv"}), "selection.csv"); }

  imageOf(row) { return imageOf(this.page, pointOfRow(this.page, row)); }

  problem(error) { return `The picture cannot be drawn: ${error.message}.`; }

  // --- points

  selected() { return this.those((point) => this.isSelected[point]); }

  nearest(question, distance, most) {
    const shows = this.shows(question);
    let [best, least] = [-1, most];
    for (let point = 0; point < this.page.nRows; point++) {
      const far = distance(point);
      if (far < least && shows(point)) [best, least] = [point, far];
    }
    return best < 0 ? null : this.record(best, question);
  }

  /** Points of a row by its number, of an id, or of a class by its name in the column of this number. */
  find({in: where, text}) {
    const {page} = this;
    if (where === "row") return [/^\d+$/.test(text) ? pointOfRow(page, Number(text)) : -1].filter((point) => point >= 0);
    if (where === "id") return this.those((point) => text !== "" && page.ids.texts[point] === text);
    const {names, values} = page.columns[where];
    const codes = new Set(names.flatMap((name, code) => (name.toLowerCase() === text.toLowerCase() ? [code] : [])));
    return this.those((point) => codes.has(values[point]));
  }

  /** The shown points inside a polygon [x, y, x, y, ...]: a line from them to the right crosses an odd number of sides. */
  inside(corners, question) {
    const [{x, y}, shows, n] = [this.layout(question), this.shows(question), corners.length];
    const [us, vs] = [0, 1].map((axis) => corners.filter((_, i) => i % 2 === axis));
    const [left, right, bottom, top] = [us, vs].flatMap((values) => [Math.min(...values), Math.max(...values)]);
    return this.those((point) => {
      const [u, v] = [x[point], y[point]];
      if (u < left || u > right || v < bottom || v > top) return false;
      let isInside = false;
      for (let i = 0, j = n - 2; i < n; j = i, i += 2) {
        if ((corners[i + 1] > v) === (corners[j + 1] > v)) continue;
        const share = (v - corners[i + 1]) / (corners[j + 1] - corners[i + 1]);
        if (u < corners[i] + share * (corners[j] - corners[i])) isInside = !isInside;
      }
      return isInside && shows(point);
    });
  }

  /** A view of some points with a margin. */
  around(points, question) {
    const {x, y, view} = this.layout(question);
    return [x, y].flatMap((values, axis) => {
      const [low, high] = [Math.min, Math.max].map((end) =>
        points.reduce((sofar, point) => end(sofar, values[point]), values[points[0]]));
      const margin = Math.max(0.15 * (high - low), 0.075 * (view[2 * axis + 1] - view[2 * axis]));
      return [low - margin, high + margin];
    });
  }

  /** What the page shows of a point. */
  record(point, question) {
    const [{x, y}, ids] = [this.layout(question), idOf(this.page, point)];
    const named = this.columns.find((column) => column.role === "value");
    const values = [...idLabel(this.page).map((label) => [label, ids[0]]),
      ...this.columns.map((column) => [column.label, textOf(column, point)])];
    const tip = [...ids, ...(named ? [textOf(named, point) || "unknown"] : [])];
    return {row: rowOf(this.page, point), at: [x[point], y[point]], values, tip};
  }

  /** Add the places of the shown points to a map of pixels. */
  addDrawn(map, tile, scales, question) {
    const [{x, y}, shows] = [this.layout(question), this.shows(question)];
    for (const point of this.order) if (shows(point)) map.add(scales.x(x[point]), scales.y(y[point]));
  }

  /** A part of the picture: points without a value are under the others, and selected ones over all, which are faded. */
  async tile({part: [left, right, bottom, top], size, larger, ...question}) {
    await new Promise((resolve) => { setTimeout(resolve); });  // the tile before is moved first
    const [width, height] = size.map((side) => Math.max(1, Math.round(side * devicePixelRatio)));
    const canvas = Object.assign(document.createElement("canvas"), {width, height});
    const image = canvas.getContext("2d").createImageData(width, height);
    const [{x, y}, key, style] = [this.layout(question), this.colors(question), pointStyle(this.page.nRows)];
    const colors = key.colors.map((color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16)));
    const [disc, isFaded] = [discOf(style.size * 1.3 ** larger * devicePixelRatio), this.isSelected.includes(1)];
    const isKnown = (point) => key.kind !== "scale" || key.codes[point] < colors.length - 1;
    const rank = (point) => 2 * this.isSelected[point] + isKnown(point);
    const [shows, reach] = [this.shows(question), disc.at(-1)[1] + 1];
    const [dx, dy] = [(reach / width) * (right - left), (reach / height) * (top - bottom)];
    const isNear = (u, v) => u > left - dx && u < right + dx && v > bottom - dy && v < top + dy;
    const shown = this.order.filter((point) => isNear(x[point], y[point]) && shows(point));
    const {data} = image;
    for (const pass of [0, 1, 2, 3]) {
      const opacity = style.opacity * (isFaded && pass < 2 ? FADED : 1);
      for (const point of shown) {
        if (rank(point) !== pass) continue;
        const column = Math.floor(((x[point] - left) / (right - left)) * width);
        const row = Math.floor(((top - y[point]) / (top - bottom)) * height);
        const color = colors[key.codes === null ? 0 : key.codes[point]];
        for (let i = 0; i < disc.length; i++) {
          const [u, v] = [column + disc[i][0], row + disc[i][1]];
          if (u < 0 || u >= width || v < 0 || v >= height) continue;
          blend(data, 4 * (v * width + u), color, opacity * disc[i][2]);
        }
      }
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }
}

const openPoints = (content) => new Points(decodePage(content));
