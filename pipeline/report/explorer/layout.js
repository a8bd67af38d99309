// Positions of the points: one component fills the view; several are side by side, moved but not scaled.

const MARGIN = 0.04;
const GAP = 0.12;

/** Points of each component, the largest component first. */
function pointsByComponent(codes, nComponents) {
  const counts = new Uint32Array(nComponents);
  for (const code of codes) if (code < nComponents) counts[code]++;
  const groups = Array.from(counts, (count) => new Uint32Array(count));
  const filled = new Uint32Array(nComponents);
  codes.forEach((code, point) => { if (code < nComponents) groups[code][filled[code]++] = point; });
  return groups.filter((group) => group.length > 0).sort((a, b) => b.length - a.length);
}

/** Positions in [-1, 1] of all points, and how to read values back from them. */
function fillView(x, y, points = null) {
  const [u, v] = [x, y].map((values) => {
    const [low, high] = robustRange(values, points);
    const half = (high - low) * (0.5 + MARGIN);
    const middle = (low + high) / 2;
    return {positions: Float32Array.from(values, (value) => (value - middle) / half), middle, half};
  });
  return {x: u.positions, y: v.positions, axes: {x: u, y: v}};
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

/** Positions of several components side by side, on one scale, in a view `aspect` times as wide as high. */
function standSideBySide(x, y, groups, aspect) {
  const ranges = groups.map((points) => [robustRange(x, points), robustRange(y, points)]);
  const mean = (axis) => ranges.reduce((sum, range) => sum + range[axis][1] - range[axis][0], 0) / ranges.length;
  const gaps = [GAP * mean(0), GAP * mean(1)];
  const boxes = ranges.map(([u, v]) => ({width: u[1] - u[0] + gaps[0], height: v[1] - v[0] + gaps[1]}));
  const shelves = arrangeBoxes(boxes, aspect);
  const half = Math.max(shelves.height, shelves.width / aspect) * (0.5 + MARGIN);
  const positions = {x: new Float32Array(x.length), y: new Float32Array(y.length), axes: null};
  groups.forEach((points, g) => {
    const left = shelves.corners[g][0] + gaps[0] / 2 - ranges[g][0][0] - shelves.width / 2;
    const low = shelves.corners[g][1] + gaps[1] / 2 - ranges[g][1][0] + shelves.height / 2;
    for (const point of points) {
      positions.x[point] = (x[point] + left) / (half * aspect);
      positions.y[point] = (y[point] + low) / half;
    }
  });
  return positions;
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
const CLEAR_SHARE = 0.9;  // of the points of a cell, from which on a class is always clear there

/**
 * Of 8 x 8 cells of their range, the members in the best one; all if the cell of the medians is half as good.
 * A cell is good if it holds many members and few other points, which would cover them: members^2 / points.
 * None if the best cell is not clear: the class has less of its points than the mean of its share and 1.
 */
function clearest(members, others, {x, y}) {
  const cells = [x, y].map((values) => {
    const [low, median, high] = percentiles(values, [0.02, 0.5, 0.98], members);
    const place = (value) => Math.floor((8 * (value - low)) / (high - low || 1));
    const cell = (value) => Math.max(0, Math.min(7, place(value)));
    return {of: (point) => cell(values[point]), has: (point) => values[point] >= low && values[point] <= high, middle: cell(median)};
  });
  const cellOfPoint = (point) => 8 * cells[1].of(point) + cells[0].of(point);
  const [counts, points] = [new Float64Array(64), new Float64Array(64)];
  for (const point of members) counts[cellOfPoint(point)]++;
  for (const point of others.sample) if (cells[0].has(point) && cells[1].has(point)) points[cellOfPoint(point)] += others.weight;
  const shares = counts.map((count, i) => count / Math.max(count, points[i], 1));
  const scores = counts.map((count, i) => count * shares[i]);
  const best = scores.indexOf(Math.max(...scores));
  if (shares[best] < Math.min(CLEAR_SHARE, (1 + others.share) / 2)) return [];
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
  const most = key.entries.map((_, e) => Math.max(...parts.map((part) => (part.entry === e ? part.inside.length : 0))));
  return parts.filter(({entry, inside, others: {share}}) => key.entries[entry].codes.length === 1 && inside.length > 0
      && (share >= NAMED_SHARE || inside.length === most[entry]))
    .sort((a, b) => b.inside.length - a.inside.length).map(({entry, inside, others}) => ({entry, point: middleOf(inside, others, positions)}))
    .filter(({point}) => point !== undefined).slice(0, MOST_NAMES).map(({entry, point}) => {
      const {name, color} = key.entries[entry];
      return {entry, name, color, x: positions.x[point], y: positions.y[point]};
    });
}
