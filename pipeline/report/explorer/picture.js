// The picture with its title, names and legend as a PNG file.

const [MARGIN_LEFT, MARGIN_TOP, MARGIN_BOTTOM, LEGEND] = [34, 46, 34, 230];

/** A text in lines of at most `width` pixels; a longer word is parted. */
function linesWithin(context, text, width) {
  const lines = [""];
  for (const letter of text) {
    const last = lines.length - 1;
    lines[last] += letter;
    if (context.measureText(lines[last]).width <= width) continue;
    const space = lines[last].lastIndexOf(" ", lines[last].length - 2);
    const at = space > 0 ? space + 1 : lines[last].length - 1;
    lines.push(lines[last].slice(at));
    lines[last] = lines[last].slice(0, at).trim();
  }
  return lines;
}

/** The shown classes of the legend in lines for the file. */
function legendLines(context, {key, chosen, numbered}) {
  if (key.kind !== "classes") return [];
  return key.entries.flatMap((entry, e) => {
    if (chosen.size > 0 && !chosen.has(e)) return [];
    const number = numbered?.has(e) ? `${numberOf(e)} ` : "";
    const text = `${number}${entry.name} (${entry.count.toLocaleString("en")})`;
    return [{color: entry.color, lines: linesWithin(context, text, LEGEND - 50)}];
  });
}

/** Draw the content of an explorer on a canvas for a file, as high as its legend needs. */
async function composePicture(explorer) {
  const family = "system-ui, sans-serif";
  const [width, height] = [byId("canvas").clientWidth, byId("canvas").clientHeight];
  const scale = Math.max(2, devicePixelRatio);
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  context.font = `600 17px ${family}`;
  const title = linesWithin(context, document.querySelector("h1").textContent, width + LEGEND - 16);
  context.font = `12px ${family}`;
  const classes = legendLines(context, explorer);
  const top = MARGIN_TOP + 22 * (title.length - 1);
  const legendHeight = classes.reduce((sum, {lines}) => sum + 15 * lines.length + 4, 30);
  const [fullWidth, fullHeight] = [width + MARGIN_LEFT + LEGEND, top + Math.max(height + MARGIN_BOTTOM, legendHeight)];
  [canvas.width, canvas.height] = [scale * fullWidth, scale * fullHeight];
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const write = (text, x, y, font, align = "left") => {
    Object.assign(context, {font, textAlign: align, fillStyle: color("--ink")});
    context.fillText(text, x, y);
  };
  context.scale(scale, scale);
  context.fillStyle = color("--card");
  context.fillRect(0, 0, fullWidth, fullHeight);
  title.forEach((line, i) => write(line, MARGIN_LEFT, 28 + 22 * i, `600 17px ${family}`));
  write(byId("x-name").textContent, MARGIN_LEFT + width / 2, height + top + 22, `13px ${family}`, "center");
  context.save();
  context.translate(20, top + height / 2);
  context.rotate(-Math.PI / 2);
  write(byId("y-name").textContent, 0, 0, `13px ${family}`, "center");
  context.restore();
  context.save();
  context.translate(MARGIN_LEFT, top);
  const {image, opacity} = await explorer.picture();
  context.globalAlpha = opacity;
  context.drawImage(image, 0, 0, width, height);
  context.globalAlpha = 1;
  for (const place of explorer.placedNames ?? []) {
    const {from, to, middle, first} = placeNow(place, explorer.scales());
    context.lineJoin = "round";
    for (const [strokeStyle, lineWidth] of [[color("--ink"), 2.5], [place.name.color, 1.5]]) {
      Object.assign(context, {strokeStyle, lineWidth});
      context.beginPath();
      context.moveTo(...from);
      context.lineTo(...to);
      context.stroke();
    }
    Object.assign(context, {fillStyle: place.name.color, strokeStyle: color("--ink"), lineWidth: 1});
    context.beginPath();
    context.arc(...from, DOT, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
    place.lines.forEach((line, i) => {
      Object.assign(context, {strokeStyle: color("--card"), lineWidth: 4, font: NAME_FONT, textAlign: "center"});
      context.strokeText(line, middle, first + i * LINE);
      write(line, middle, first + i * LINE, NAME_FONT, "center");
    });
  }
  Object.assign(context, {strokeStyle: color("--rule"), lineWidth: 1});
  context.strokeRect(0, 0, width, height);
  context.translate(width + 16, 12);
  write(byId("legend-title").textContent, 0, 0, `600 13px ${family}`);
  drawKey(context, explorer.key, classes, write, family);
  context.restore();
  return canvas;
}

/** The classes or the scale of the colours, below the title of the legend. */
function drawKey(context, key, classes, write, family) {
  if (key.kind === "classes") {
    let y = 24;
    for (const {color, lines} of classes) {
      context.fillStyle = color;
      context.beginPath();
      context.arc(6, y - 4, 5, 0, 2 * Math.PI);
      context.fill();
      for (const line of lines) { write(line, 18, y, `12px ${family}`); y += 15; }
      y += 4;
    }
  } else if (key.kind === "scale") {
    const colors = barColors(key);
    const width = 192 / colors.length;
    colors.forEach((color, i) => { context.fillStyle = color; context.fillRect(width * i, 12, width + 0.5, 12); });
    const ends = [...document.querySelectorAll("#legend .ends span")].map((end) => end.textContent);
    write(ends[0], 0, 40, `12px ${family}`);
    if (ends.length > 1) write(ends[1], 192, 40, `12px ${family}`, "right");
  }
}

async function savePicture(explorer) {
  const canvas = await composePicture(explorer);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  download(blob, "embedding.png");
}
