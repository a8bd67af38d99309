// The points of `lle explore`: its server draws them and answers questions about them.

class Server {
  /** content: what the menus offer, and the shape of the images of rows. */
  constructor(content) { Object.assign(this, content); }

  async ask(name, question) {
    const response = await fetch(`${name}.json?${new URLSearchParams(question)}`);
    if (!response.ok) throw new Error(await response.text());
    return response.json();
  }

  async tile(question) {
    const image = Object.assign(new Image(), {alt: "", draggable: false, src: `tile.png?${new URLSearchParams(question)}`});
    await image.decode();
    return image;
  }

  /** Add the pixels of a tile that are not empty to a map. */
  addDrawn(map, tile) {
    const {width, height} = map;
    const context = new OffscreenCanvas(width, height).getContext("2d");
    if (tile) context.drawImage(tile, 0, 0, width, height);
    const {data} = context.getImageData(0, 0, width, height);
    for (let i = 3; i < data.length; i += 4) if (data[i] > 0) map.add(((i - 3) / 4) % width, Math.floor((i - 3) / 4 / width));
  }

  imageOf(row) {
    if (this.imageShape === null) return null;
    const [height, width] = this.imageShape;
    return {url: `image.png?row=${row}`, x: 0, y: 0, width, height, full: [width, height]};
  }

  save(question) {
    const href = `selection.csv?${new URLSearchParams(question)}`;
    Object.assign(document.createElement("a"), {href, download: "selection.csv"}).click();
  }

  problem(error) {
    return `No answer from lle explore: ${error.message}. If the command has ended, start it again and open its new address.`;
  }
}

const openPoints = (content) => new Server(content);
