// Positions of the points, and of the names of their classes.

const MARGIN = 0.04;
const GAP = 0.12;
const ASPECT = 1.6;

/** Points of each component. */
function pointsByComponent(codes, nComponents) {
  const counts = new Uint32Array(nComponents);
  for (const code of codes) if (code < nComponents) counts[code]++;
  const groups = Array.from(counts, (count) => new Uint32Array(count));
  const filled = new Uint32Array(nComponents);
  codes.forEach((code, point) => { if (code < nComponents) groups[code][filled[code]++] = point; });
  return groups;
}

/** The part of the picture [left, right, bottom, top] that shows these points; all without points. */
function viewOf(x, y, points = null) {
  return [x, y].flatMap((values) => {
    const [low, high] = robustRange(values, points);
    return [low - MARGIN * (high - low), high + MARGIN * (high - low)];
  });
}

/** Lower left corners of boxes {width, height} on shelves from the top, each filled up to `width`. */
function fillShelves(boxes, width) {
  let [left, top, bottom] = [0, 0, 0];
  const corners = boxes.map((box) => {
    if (left > 0 && left + box.width > width) [left, top] = [0, bottom];
    const corner = [left, -top - box.height];
    left += box.width;
    bottom = Math.max(bottom, top + box.height);
    return corner;
  });
  const right = Math.max(...corners.map((corner, i) => corner[0] + boxes[i].width));
  return {corners, width: right, height: bottom};
}

/** Shelves about `aspect` times as wide as high. */
function arrangeBoxes(boxes, aspect) {
  let best = null;
  let width = 0;
  const widest = Math.max(...boxes.map((box) => box.width));
  for (const box of boxes.slice(0, 200)) {
    width += box.width;
    if (width < widest) continue;
    const shelves = fillShelves(boxes, width);
    const miss = Math.abs(Math.log(shelves.width / shelves.height / aspect));
    if (best === null || miss < best.miss) best = {...shelves, miss};
  }
  return best ?? fillShelves(boxes, widest);
}

/** Positions of several components side by side, moved but not scaled, and the part of the picture that shows them. */
function standSideBySide(x, y, groups) {
  const ranges = groups.map((points) => [robustRange(x, points), robustRange(y, points)]);
  const [wide, high] = [0, 1].map((axis) => ranges.map((range) => range[axis][1] - range[axis][0]));
  const gap = (sizes) => (GAP * sizes.reduce((sum, size) => sum + size, 0)) / sizes.length;
  const boxes = wide.map((width, g) => ({width: width + gap(wide), height: high[g] + gap(high)}));
  const {corners} = arrangeBoxes(boxes, ASPECT);
  const moved = [new Float64Array(x.length), new Float64Array(y.length)];
  groups.forEach((points, g) => [x, y].forEach((values, axis) => {
    for (const point of points) moved[axis][point] = values[point] + corners[g][axis] - ranges[g][axis][0];
  }));
  return {x: moved[0], y: moved[1], view: viewOf(...moved)};
}

/** 0 to n - 1 in a random order that is the same in every run: input is often sorted by class. */
function randomOrder(n) {
  let state = 20001222;
  const order = Array.from({length: n}, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 4294967296) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

const NAMED_SHARE = 0.01;  // a class has its name in each piece of which it is at least this share
const MOST_NAMES = 60;
const [LEAST_RATIO, LEAST_GAIN] = [1.5, 0.1];  // as in report/class_names.py

/** Whether points are hardly more often of a class beside its members than anywhere; members and points of cells. */
function isMixed(members, points, share) {
  let [gain, n] = [0, 0];
  members.forEach((count, i) => {
    if (points[i] > 1) [gain, n] = [gain + count * ((count - 1) / (points[i] - 1) - share), n + count];
  });
  return gain < Math.min((LEAST_RATIO - 1) * share, LEAST_GAIN * (1 - share)) * n;
}

/**
 * Of 8 x 8 cells of their range, the members in the best one; all if the cell of the medians is half as good.
 * A cell is good if it holds many members and few other points, which would cover them: members^2 / points.
 * None if the class is mixed with others.
 */
function clearest(members, others, {x, y}) {
  const cells = [x, y].map((values) => {
    const [low, median, high] = percentiles(values, [0.02, 0.5, 0.98], members);
    const place = (value) => Math.floor((8 * (value - low)) / (high - low || 1));
    const cell = (value) => Math.max(0, Math.min(7, place(value)));
    return {of: (point) => cell(values[point]), has: (point) => values[point] >= low && values[point] <= high, middle: cell(median)};
  });
  const cellOfPoint = (point) => 8 * cells[1].of(point) + cells[0].of(point);
  const [counts, inside, points] = [0, 0, 0].map(() => new Float64Array(64));
  const isInside = (point) => cells[0].has(point) && cells[1].has(point);
  for (const point of members) {
    counts[cellOfPoint(point)]++;
    inside[cellOfPoint(point)] += isInside(point);
  }
  for (const point of others.sample) if (isInside(point)) points[cellOfPoint(point)] += others.weight;
  const around = inside.map((count, i) => Math.max(count, points[i]));
  const whole = [inside, around].map((values) => [values.reduce((sum, value) => sum + value, 0)]);
  if (isMixed(inside, around, others.share) && isMixed(...whole, others.share)) return [];
  const scores = counts.map((count, i) => count ** 2 / Math.max(count, points[i], 1));
  const best = scores.indexOf(Math.max(...scores));
  if (2 * scores[8 * cells[1].middle + cells[0].middle] >= scores[best]) return members;
  return members.filter((point) => cellOfPoint(point) === best);
}

/** A point in a clear part of `all`: the one nearest to the medians, which may lie beside all points; undefined if none is clear. */
function middleOf(all, others, positions) {
  const [{x, y}, members] = [positions, clearest(all, others, positions)];
  const [u, v] = [x, y].map((values) => percentiles(values, [0.5], members)[0]);
  const distance = (point) => (x[point] - u) ** 2 + (y[point] - v) ** 2;
  return members.reduce((best, point) => (distance(point) < distance(best) ? point : best), members[0]);
}

/** One place for the name of each class in each piece (points; null: all) with enough, or with most, of its points. */
function placesOfNames(key, positions, pieces) {
  const parts = pieces.flatMap((points) => {
    const members = key.entries.map(() => []);
    const n = points === null ? positions.x.length : points.length;
    for (let i = 0; i < n; i++) members[key.codes[points === null ? i : points[i]]].push(points === null ? i : points[i]);
    const weight = Math.ceil(n / 50000);
    const sample = Array.from({length: Math.floor(n / weight)}, (_, i) => (points === null ? i * weight : points[i * weight]));
    return members.map((inside, entry) => ({entry, inside, others: {sample, weight, share: inside.length / n}}));
  });
  const most = key.entries.map(() => 0);
  for (const {entry, inside} of parts) most[entry] = Math.max(most[entry], inside.length);
  return parts.filter(({entry, inside, others: {share}}) => entry < key.nNamed && inside.length > 0
      && (share >= NAMED_SHARE || inside.length === most[entry]))
    .sort((a, b) => b.inside.length - a.inside.length).map(({entry, inside, others}) => ({entry, point: middleOf(inside, others, positions)}))
    .filter(({point}) => point !== undefined).slice(0, MOST_NAMES)
    .map(({entry, point}) => ({entry, name: key.entries[entry].name, x: positions.x[point], y: positions.y[point]}));
}
