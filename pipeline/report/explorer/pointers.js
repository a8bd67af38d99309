// Mouse and fingers on the picture.

const MAX_CORNERS = 400;  // of a lasso; they are part of an address
const CLICK = 4;  // pixels that a pointer may move in a click

/** Dragging moves the view or draws the outline of a selection, two fingers zoom, a pointer above shows its row. */
function followPointers(explorer) {
  const [pointers, box] = [new Map(), explorer.box];
  let [corners, pressed] = [null, null];
  const changeOf = (event) => (event.ctrlKey ? "add" : event.altKey ? "remove" : "replace");
  const modeOf = (event) => {
    const mode = document.querySelector("input[name=mode]:checked").value;
    return event.shiftKey && mode === "move" ? "lasso" : mode;
  };
  const extend = (event) => {
    const at = explorer.valueAt(...explorer.pixelOf(event));
    if (corners.mode === "lasso") {
      if (corners.points.length === MAX_CORNERS) corners.points = corners.points.filter((_, i) => i % 2 === 0);
      corners.points.push(at);
    } else corners.points = [corners.points[0], [at[0], corners.points[0][1]], at, [corners.points[0][0], at[1]]];
    explorer.outline(corners.points);
  };
  box.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    box.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, explorer.pixelOf(event));
    explorer.dragging = true;
    const mode = modeOf(event);
    pressed = pointers.size > 1 ? null : explorer.pixelOf(event);
    corners = pointers.size > 1 || mode === "move" ? null
      : {mode, points: [explorer.valueAt(...explorer.pixelOf(event))]};
  });
  box.addEventListener("pointermove", (event) => {
    const [before, now] = [pointers.get(event.pointerId), explorer.pixelOf(event)];
    if (before === undefined) { explorer.hover(now); return; }
    if (pressed !== null && Math.hypot(now[0] - pressed[0], now[1] - pressed[1]) > CLICK) pressed = null;
    if (corners !== null) { extend(event); return; }
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other === undefined) {
      const [width, height] = explorer.size();
      explorer.pan((before[0] - now[0]) / width, (now[1] - before[1]) / height);
    } else {
      const length = ([x, y]) => Math.max(1, Math.hypot(x - other[0], y - other[1]));
      explorer.zoom(length(now) / length(before), ...other);
    }
    pointers.set(event.pointerId, now);
  });
  for (const type of ["pointerup", "pointercancel"]) {
    box.addEventListener(type, (event) => {
      pointers.delete(event.pointerId);
      explorer.dragging = pointers.size > 0;
      if (type === "pointerup" && pressed !== null) explorer.click(pressed, changeOf(event));
      else if (corners !== null && corners.points.length > 2) {
        explorer.select(changeOf(event), {polygon: corners.points.flat()});
      }
      if (corners !== null) explorer.outline([]);
      [corners, pressed] = [null, null];
    });
  }
  box.addEventListener("pointerleave", () => {
    [explorer.pointer, explorer.above] = [null, false];  // an answer may be on its way
    byId("tip").hidden = true;
  });
}
