// The picture with its title, names and legend as a PNG file.

const [MARGIN_LEFT, MARGIN_TOP, MARGIN_BOTTOM, LEGEND] = [34, 46, 34, 230];

/** Draw the content of an explorer on a canvas for a file. */
async function composePicture(explorer) {
  const [width, height] = [byId("canvas").clientWidth, byId("canvas").clientHeight];
  const scale = Math.max(2, devicePixelRatio);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [scale * (width + MARGIN_LEFT + LEGEND), scale * (height + MARGIN_TOP + MARGIN_BOTTOM)];
  const context = canvas.getContext("2d");
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const write = (text, x, y, font, align = "left") => {
    Object.assign(context, {font, textAlign: align, fillStyle: color("--ink")});
    context.fillText(text, x, y);
  };
  const family = "system-ui, sans-serif";
  context.scale(scale, scale);
  context.fillStyle = color("--card");
  context.fillRect(0, 0, width + MARGIN_LEFT + LEGEND, height + MARGIN_TOP + MARGIN_BOTTOM);
  write(document.querySelector("h1").textContent, MARGIN_LEFT, 28, `600 17px ${family}`);
  write(byId("x-name").textContent, MARGIN_LEFT + width / 2, height + MARGIN_TOP + 22, `13px ${family}`, "center");
  context.save();
  context.translate(20, MARGIN_TOP + height / 2);
  context.rotate(-Math.PI / 2);
  write(byId("y-name").textContent, 0, 0, `13px ${family}`, "center");
  context.restore();
  context.save();
  context.translate(MARGIN_LEFT, MARGIN_TOP);
  const {image, opacity} = await explorer.picture();
  context.globalAlpha = opacity;
  context.drawImage(image, 0, 0, width, height);
  context.globalAlpha = 1;
  for (const place of explorer.placedNames ?? []) {
    const {from, to, middle, first} = placeNow(place, explorer.plot.scalesNow());
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
  drawKey(context, explorer, write, family, height);
  context.restore();
  return canvas;
}

/** The classes or the scale of the colours, below the title of the legend. */
function drawKey(context, {key, chosen}, write, family, height) {
  if (key.kind === "classes") {
    const shown = key.entries.filter((_, e) => chosen.size === 0 || chosen.has(e));
    shown.slice(0, Math.floor((height - 30) / 19)).forEach((entry, e) => {
      context.fillStyle = entry.color;
      context.beginPath();
      context.arc(6, 20 + 19 * e, 5, 0, 2 * Math.PI);
      context.fill();
      write(`${entry.name} (${entry.count.toLocaleString("en")})`, 18, 24 + 19 * e, `12px ${family}`);
    });
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
