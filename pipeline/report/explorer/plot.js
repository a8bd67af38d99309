// The canvas: regl-scatterplot draws, picks and selects; this file feeds it and adds touch.

/** A scale as regl-scatterplot wants it, of [domain] onto [range]; it keeps the view's domain up to date. */
function linearScale() {
  let [domain, range] = [[-1, 1], [0, 1]];
  const scale = (value) => range[0] + ((value - domain[0]) / (domain[1] - domain[0])) * (range[1] - range[0]);
  scale.domain = (value) => { if (!value) return domain; domain = [...value]; return scale; };
  scale.range = (value) => { if (!value) return range; range = [...value]; return scale; };
  return scale;
}

/** Size in pixels and opacity of points, by their number. */
function pointStyle(n) {
  if (n <= 2000) return {size: 7, opacity: 0.9};
  if (n <= 20000) return {size: 4, opacity: 0.8};
  if (n <= 200000) return {size: 2.5, opacity: 0.6};
  return {size: 1.5, opacity: 0.4};
}

const FADED = 0.2;  // opacity of points beside selected ones, as a share of their own

/** An order of points in which those without a value are covered by the others. */
function knownLast(order, key) {
  if (!(key.unknown > 0)) return order;
  return [...order.filter((point) => key.codes[point] === 64), ...order.filter((point) => key.codes[point] !== 64)];
}

class Plot {
  constructor(canvas, page) {
    this.canvas = canvas;
    this.order = randomOrder(page.nRows);
    this.scales = {x: linearScale(), y: linearScale()};
    this.n = page.nRows;
    const style = this.style = pointStyle(page.nRows);
    byId("opacity").value = 100 * style.opacity;
    this.library = ReglScatterplot.createScatterplot({
      canvas, xScale: this.scales.x, yScale: this.scales.y, aspectRatio: this.aspect(), colorBy: "valueA",
      pointSize: style.size, opacity: style.opacity, pointSizeSelected: 1, pointOutlineWidth: 0, lassoMinDelay: 8,
      deselectOnEscape: false, deselectOnDblClick: false, opacityInactiveMax: 1, opacityInactiveScale: FADED,
      actionKeyMap: {lasso: "shift", merge: "ctrl", remove: "alt"},
    });
    this.library.set({actionKeyMap: {lasso: "shift", merge: "ctrl", remove: "alt"}});  // no rotation
    this.fitBuffer();
    translateTouch(canvas, (factor, x, y) => this.zoomAt(factor, x, y));
  }

  /** The library draws into a buffer of at most the size of the screen, which would cut the picture of a larger window. */
  fitBuffer() {
    const box = this.canvas.getBoundingClientRect();
    this.library.get("renderer").resize(Math.ceil(box.width), Math.ceil(box.height));
  }

  size() { return `${this.canvas.clientWidth} ${this.canvas.clientHeight}`; }

  aspect() {
    const box = this.canvas.getBoundingClientRect();
    return Math.max(0.2, box.width / Math.max(1, box.height));
  }

  /** The library updates the scales only after a mouse or a wheel has moved the view, and when it gets scales. */
  follow(moved) {
    for (const axis of ["x", "y"]) {  // one by one, because setting a scale also moves the domain of the other one
      this.scales[axis].domain([-1, 1]);
      this.library.set({[`${axis}Scale`]: this.scales[axis]});
    }
    this.onView?.();
    return moved;
  }

  on(event, listener) { this.library.subscribe(event, listener); }

  /** Larger or smaller points than usual, and their opacity. */
  setStyle(larger, opacity) { this.library.set({pointSize: this.style.size * 1.3 ** larger, opacity}); }

  scalesNow() { return this.scales; }

  /** Colours of the page around the points. */
  setTheme(dark) {
    this.library.set({
      backgroundColor: dark ? "#1d232a" : "#ffffff", lassoColor: dark ? "#6fb3d9" : "#2a6f97",
      reticleColor: dark ? [1, 1, 1, 0.5] : [0, 0, 0, 0.45],
      pointColorHover: dark ? "#ffffff" : "#000000",
    });
  }

  /** Draw all points anew: positions in [-1, 1], a colour code each. The view and the selection stay. */
  async draw(positions, key, keepIndex) {
    this.drawing = (this.drawing ?? Promise.resolve()).then(async () => {
      const selected = [...this.library.get("selectedPoints")];
      this.library.set({pointColor: key.colors, pointColorActive: key.colors, aspectRatio: this.aspect()});
      const z = key.codes ?? new Uint8Array(this.n);
      const index = keepIndex ? this.library.get("spatialIndex") : undefined;
      await this.library.draw({x: positions.x, y: positions.y, z},
        {zDataType: "categorical", spatialIndex: index ?? undefined, select: selected});
      this.library.set({pointOrder: knownLast(this.order, key)});
      this.positions = positions;
      this.follow();
    });
    return this.drawing;
  }

  /** Show only these points; null shows all. */
  show(points) {
    this.visible = points === null ? null : new Set(points);
    if (points === null) this.library.unfilter(); else this.library.filter(points);
  }

  isVisible(point) { return this.visible === null || this.visible === undefined || this.visible.has(point); }

  select(points) { this.library.select(points); }

  selected() { return this.library.get("selectedPoints"); }

  clear() { this.library.deselect(); }

  /** Select the visible points within the view. */
  selectInView() {
    const [[left, right], [bottom, top]] = [this.scales.x.domain(), this.scales.y.domain()];
    const {x, y} = this.positions;
    const points = [];
    for (let i = 0; i < this.n; i++) {
      if (x[i] >= left && x[i] <= right && y[i] >= bottom && y[i] <= top && this.isVisible(i)) points.push(i);
    }
    this.select(points);
  }

  setMode(mode) {
    this.library.set(mode === "move" ? {mouseMode: "panZoom"} : {mouseMode: "lasso", lassoType: mode});
  }

  mark(point) { this.library.hover(point, {showReticleOnce: true}); }

  /** Where a point is drawn, in pixels of the canvas. */
  place(point) { return this.library.getScreenPosition(point); }

  fit() { return this.follow(this.library.zoomToOrigin({transition: false})); }

  /** Move the view by shares of its width and height. */
  pan(x, y) {
    const [target, distance] = [this.library.get("cameraTarget"), [this.library.get("cameraDistance")].flat()[0]];
    const place = [target[0] + 2 * x * distance * this.aspect(), target[1] + 2 * y * distance];
    this.follow(this.library.zoomToLocation(place, distance, {transition: false}));
  }

  /** Move the view so that a point outside of it is in the middle. */
  reveal(point) {
    const [[left, top], width, height] = [this.place(point), this.canvas.clientWidth, this.canvas.clientHeight];
    if (left >= 0 && left <= width && top >= 0 && top <= height) return;
    this.pan(left / width - 0.5, 0.5 - top / height);
  }

  zoom(factor) {
    const box = this.canvas.getBoundingClientRect();
    this.zoomAt(factor, box.left + box.width / 2, box.top + box.height / 2);
  }

  /** The wheel is how the library zooms about a place. */
  zoomAt(factor, clientX, clientY) {
    const deltaY = -Math.log(factor) * this.canvas.getBoundingClientRect().height;
    this.canvas.dispatchEvent(new MouseEvent("mousemove", {clientX, clientY, bubbles: true}));
    this.canvas.dispatchEvent(new WheelEvent("wheel", {deltaY, clientX, clientY, bubbles: true, cancelable: true}));
  }

  /** Zoom to points, or about one so that its neighbours show. */
  zoomTo(points) {
    if (points.length > 1) return this.follow(this.library.zoomToPoints(points, {padding: 0.3, transition: false}));
    const [x, y] = [this.positions.x[points[0]], this.positions.y[points[0]]];
    return this.follow(this.library.zoomToArea({x: x - 0.15, y: y - 0.15, width: 0.3, height: 0.3}, {transition: false}));
  }

  /** The nearest visible point to the left, right, above or below of another; -1 where there is none. */
  neighbor(point, direction) {
    const [dx, dy] = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[direction];
    const {x, y} = this.positions;
    let [best, nearest] = [-1, Infinity];
    for (let i = 0; i < this.n; i++) {
      const [u, v] = [x[i] - x[point], y[i] - y[point]];
      const along = u * dx + v * dy;
      const across = Math.abs(u * dy - v * dx);
      const distance = u * u + v * v;
      if (along > 0 && across <= along && distance < nearest && this.isVisible(i)) [best, nearest] = [i, distance];
    }
    return best;
  }
}

/** One finger acts as the mouse does in the chosen mode; two fingers zoom. */
function translateTouch(canvas, zoomAt) {
  const fingers = new Map();
  const mouse = (type, event) => canvas.dispatchEvent(new MouseEvent(type, {
    clientX: event.clientX, clientY: event.clientY, bubbles: true, cancelable: true, buttons: type === "mouseup" ? 0 : 1,
  }));
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return {length: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY), x: (a.clientX + b.clientX) / 2,
      y: (a.clientY + b.clientY) / 2};
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "touch") return;
    fingers.set(event.pointerId, event);
    if (fingers.size === 1) {
      mouse("mouseenter", event);
      mouse("mousemove", event);
      // The library moves the view by what the mouse moved since the last frame; the finger's first place is no move.
      requestAnimationFrame(() => requestAnimationFrame(() => { if (fingers.size === 1) mouse("mousedown", event); }));
    }
    if (fingers.size === 2) mouse("mouseup", event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    const before = fingers.size === 2 ? spread() : null;
    fingers.set(event.pointerId, event);
    if (before === null) { mouse("mousemove", event); return; }
    const after = spread();
    zoomAt(after.length / Math.max(1, before.length), after.x, after.y);
  });
  for (const type of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(type, (event) => {
      if (fingers.delete(event.pointerId) && fingers.size === 0) mouse("mouseup", event);
    });
  }
}
