// Names of classes in the picture: beside the points, with a line to them, where nothing else is drawn.

const CELL = 6;  // pixels of a cell of the map of what is drawn
const LINE = 16;  // height of a line of a name
const LETTERS = 20;  // in a line of a name, about
const NAME_FONT = "600 13px system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
const MOST_AREA = 0.25;  // share of the picture that names may take before the long ones become numbers
const DOT = 4;  // radius of the dot, in the colour of the class, where a line ends
const RADII = [14, 26, 40, 58, 80, 106, 138, 176, 222, 280, 350];
const ANGLES = Array.from({length: 48}, (_, i) => (i * Math.PI) / 24);

/** Whether something is drawn in parts of a picture: sums over cells, so that each lookup takes constant time. */
class DrawnMap {
  constructor(width, height) {
    [this.width, this.height] = [width, height];
    this.columns = Math.ceil(width / CELL) + 1;
    this.rows = Math.ceil(height / CELL) + 1;
    this.sums = new Uint32Array(this.columns * this.rows);
  }

  add(x, y) {
    if (x >= 0 && y >= 0 && x < this.width && y < this.height) {
      this.sums[(Math.floor(y / CELL) + 1) * this.columns + Math.floor(x / CELL) + 1] = 1;
    }
  }

  /** To be called after the last `add`. */
  finish() {
    for (let r = 1; r < this.rows; r++) {
      for (let c = 1; c < this.columns; c++) {
        const at = r * this.columns + c;
        this.sums[at] += this.sums[at - 1] + this.sums[at - this.columns] - this.sums[at - this.columns - 1];
      }
    }
    return this;
  }

  /** The number of cells under a box in which something is drawn. */
  under({left, top, right, bottom}) {
    const clip = (v, most) => Math.max(0, Math.min(most, v));
    const [c0, c1] = [clip(Math.floor(left / CELL), this.columns - 1), clip(Math.ceil(right / CELL), this.columns - 1)];
    const [r0, r1] = [clip(Math.floor(top / CELL), this.rows - 1), clip(Math.ceil(bottom / CELL), this.rows - 1)];
    const sum = (r, c) => this.sums[r * this.columns + c];
    return sum(r1, c1) - sum(r0, c1) - sum(r1, c0) + sum(r0, c0);
  }

  /** How long, in cells, a line is over cells in which something is drawn. */
  along([[x0, y0], [x1, y1]]) {
    const n = Math.floor(Math.hypot(x1 - x0, y1 - y0) / CELL);
    let count = 0;
    for (let i = 1; i <= n; i++) {
      const [x, y] = [x0 + (i / n) * (x1 - x0), y0 + (i / n) * (y1 - y0)];
      count += this.under({left: x, right: x + 0.1, top: y, bottom: y + 0.1}) > 0;
    }
    return count;
  }
}

/** A name in lines of about LETTERS letters; a longer word is parted, after a sign where it has one. */
function linesOf(name) {
  const lines = [""];
  const parts = (word) => (word.length <= LETTERS ? [word] : word.match(/.{1,19}[-/_.,:;+]|.{1,20}/gu));
  for (const word of name.split(/\s+/).flatMap(parts)) {
    const last = lines.length - 1;
    if (lines[last] !== "" && lines[last].length + word.length >= LETTERS) lines.push(word);
    else lines[last] = `${lines[last]} ${word}`.trim();
  }
  return lines;
}

const overlaps = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

/** Whether a line crosses another one. */
function crosses([a, b], [c, d]) {
  const side = (p, q, r) => Math.sign((q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]));
  return side(a, b, c) !== side(a, b, d) && side(c, d, a) !== side(c, d, b);
}

/** Whether a line meets a box. */
function meets(line, box) {
  const corners = [[box.left, box.top], [box.right, box.top], [box.right, box.bottom], [box.left, box.bottom]];
  return corners.some((corner, i) => crosses(line, [corner, corners[(i + 1) % 4]]));
}

/** The box of a name about a place, and the line from the place to it. */
function placeAt([x, y], radius, angle, {width, height}) {
  const [dx, dy] = [Math.cos(angle) * (radius + width / 2), Math.sin(angle) * (radius + height / 2)];
  const box = {left: x + dx - width / 2, right: x + dx + width / 2, top: y + dy - height / 2, bottom: y + dy + height / 2};
  return {dx, dy, box, line: [[x, y], [Math.max(box.left, Math.min(x, box.right)), Math.max(box.top, Math.min(y, box.bottom))]]};
}

/** The best place for a text {at, width, height} beside those that are placed; null where there is none in the picture. */
function bestPlace({at, width, height}, placed, drawn) {
  let best = null;
  for (const radius of RADII) {
    if (best !== null && best.cost <= radius) break;  // places farther away cost more
    for (const angle of ANGLES) {
      const place = placeAt(at, radius, angle, {width, height});
      const {left, right, top, bottom} = place.box;
      if (left < 2 || top < 2 || right > drawn.width - 2 || bottom > drawn.height - 2) continue;
      if (placed.some((other) => overlaps(place.box, other.box))) continue;
      const faults = placed.reduce((sum, other) => sum + crosses(place.line, other.line)
        + 2 * (meets(place.line, other.box) + meets(other.line, place.box)), 0);
      const covered = drawn.under(place.box);
      const cost = radius + 60 * covered + 150 * faults + 6 * drawn.along(place.line);
      if (best === null || cost < best.cost) best = {...place, cost, faults, covered};
    }
  }
  return best;
}

/** Whether a text has no good place: none, or one where its line crosses others, or over parts of what is drawn. */
function isBadlyPlaced({place, width, height}) {
  if (place === null || place.faults > 0) return true;
  return place.covered > 8 && place.covered < 0.7 * (width / CELL) * (height / CELL);  // above: within a dense cloud
}

/** Names with their places, the first ones first; the names of the entries in `numbered` are numbers. */
function placeTexts(names, numbered, scales, drawn, context) {
  const [texts, placed] = [[], []];
  for (const name of names) {
    const lines = numbered.has(name.entry) ? [numberOf(name.entry)] : linesOf(name.name);
    const size = {width: Math.max(...lines.map((line) => context.measureText(line).width)) + 8, height: LINE * lines.length + 2};
    const place = bestPlace({at: [scales.x(name.x), scales.y(name.y)], ...size}, placed, drawn);
    texts.push({name, lines, size, ...size, place});
    if (place !== null) placed.push(place);
  }
  return texts;
}

/**
 * Places for the names within the picture. Long names are numbers of the legend, the set `numbered`, if all names would
 * fill too much of the picture; other names are, if they have no good place.
 */
function arrangeNames(names, scales, drawn) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = NAME_FONT;
  const inView = names.filter(({x, y}) => scales.x(x) >= 0 && scales.y(y) >= 0 && scales.x(x) <= drawn.width && scales.y(y) <= drawn.height);
  const numbered = new Set();
  const arrange = () => placeTexts(inView, numbered, scales, drawn, context);
  const number = (texts) => texts.forEach(({name}) => numbered.add(name.entry));
  let texts = arrange();
  const area = texts.reduce((sum, {width, height}) => sum + width * height, 0);
  if (area > MOST_AREA * drawn.width * drawn.height) number(texts.filter(({lines}) => lines.length > 1));
  else number(texts.filter(isBadlyPlaced));
  if (numbered.size > 0) texts = arrange();
  const missing = texts.filter(({place}) => place === null);
  if (missing.length > 0) {
    number(missing);
    number(texts.filter(({lines}) => lines.length > 1));
    texts = arrange();
  }
  return {numbered, placed: texts.filter(({place}) => place !== null).map(({place, ...text}) => ({...place, ...text}))};
}

const numberOf = (entry) => `#${entry + 1}`;

/** Show the numbers of the entries in `numbered` in the legend of classes. */
function numberLegend(numbered) {
  document.querySelectorAll("#legend button > span").forEach((span, entry) => {
    if (numbered.has(entry)) span.dataset.number = `${numberOf(entry)} `; else delete span.dataset.number;
  });
}

const svgElement = (tag, attributes, children = []) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

/** Where an arranged name is now: the view may have moved since it was arranged. */
function placeNow(place, scales) {
  const [x, y] = [scales.x(place.name.x), scales.y(place.name.y)];
  const {width, height} = place.size;
  const [left, top] = [x + place.dx - width / 2, y + place.dy - height / 2];
  return {from: [x, y], to: [Math.max(left, Math.min(x, left + width)), Math.max(top, Math.min(y, top + height))],
    middle: left + width / 2, first: top + LINE - 3};
}

function drawNames(element, placed, scales) {
  element.replaceChildren(...placed.map((place) => {
    const {from, to, middle, first} = placeNow(place, scales);
    return svgElement("g", {}, [svgElement("line", {x1: from[0], y1: from[1], x2: to[0], y2: to[1]}),
      svgElement("polyline", {points: `${from} ${to}`, stroke: place.name.color}),
      svgElement("circle", {cx: from[0], cy: from[1], r: DOT, fill: place.name.color}),
      svgElement("text", {}, place.lines.map((line, i) => svgElement("tspan", {x: middle, y: first + i * LINE}, [line])))]);
  }));
}

/** Arrange the names of an explorer anew, at once or when its view has come to rest; until then, `arranging` is set. */
function showNames(explorer, later = false) {
  clearTimeout(explorer.arranging);
  const show = () => {
    const isShown = byId("show-names").checked && explorer.key?.kind === "classes";
    const names = explorer.names.filter((name) => explorer.chosen.size === 0 || explorer.chosen.has(name.entry));
    const {placed, numbered} = isShown ? arrangeNames(names, explorer.scales(), explorer.drawnMap())
      : {placed: [], numbered: new Set()};
    Object.assign(explorer, {placedNames: placed, numbered});
    numberLegend(numbered);
    drawNames(byId("names"), explorer.placedNames, explorer.scales());
    explorer.arranging = null;
  };
  if (!later) { show(); return; }
  drawNames(byId("names"), explorer.placedNames ?? [], explorer.scales());
  explorer.arranging = setTimeout(show, 200);
}
