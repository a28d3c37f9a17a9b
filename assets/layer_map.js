// The layer map: the cosine of every pair of states as one image, and under it the blocks as a strip that is dragged
// or moved with the arrow keys. `element`, `props`, `trigger` and `watch` are given by gr.HTML. props.value is JSON:
// {blocks, gaps: [[first, last], ...], cosine: base64 of int16 (cosine * 10000), row by row, or null}.
const SVG = "http://www.w3.org/2000/svg";
const LEFT = 30, SIDE = 366, STRIP_TOP = SIDE + 8, STRIP_HEIGHT = 26;
// [position 0..1, r, g, b]: the diverging scale of analysis/palette.py, given by the page so that there is one truth.
const scale = JSON.parse(element.querySelector(".gl-map").dataset.scale);
const IDLE = {
  nothing: ["Drag here to choose blocks by hand,", "or let a criterion such as best find them."],
  chosen: ["Press Run to see how alike the states are.", ""],
};

let blocks = 0, gaps = [], cosine = null, drag = null, told = "";

const root = element.querySelector(".gl-map");
const svg = root.querySelector("svg");
const says = root.querySelector(".gl-map-says");
const hint = root.querySelector(".gl-map-hover");

function make(name, attributes, parent) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  parent.appendChild(node);
  return node;
}

const cell = () => SIDE / (blocks + 1);
const blockX = (block) => LEFT + (block + 0.5) * cell();
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const countRemoved = () => gaps.reduce((sum, [first, last]) => sum + last - first + 1, 0);

function describe() {
  const n = countRemoved();
  if (!n) return `removes nothing (0 of ${blocks})`;
  const names = gaps.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
  return `removes ${n === 1 ? "block" : "blocks"} ${names} (${n} of ${blocks})`;
}

// Colour follows the angle between two states, not its cosine: most cosines crowd near 1.
function colour(cosineOfPair) {
  const at = Math.asin(clamp(cosineOfPair, -1, 1)) / Math.PI + 0.5;
  const upper = Math.max(1, scale.findIndex(([position]) => position >= at));
  const [p0, ...low] = scale[upper - 1], [p1, ...high] = scale[upper];
  return low.map((c, i) => Math.round(c + ((at - p0) / (p1 - p0)) * (high[i] - c)));
}

function picture() {
  const n = blocks + 1;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = n;
  const context = canvas.getContext("2d"), image = context.createImageData(n, n);
  for (let k = 0; k < n * n; k++) image.data.set([...colour(cosine[k] / 10000), 255], 4 * k);
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

function draw() {
  svg.replaceChildren();
  const c = cell(), every = blocks <= 40 ? 5 : 10;
  make("rect", { x: LEFT, y: 0, width: SIDE, height: SIDE, class: "gl-map-ground" }, svg);
  if (cosine) {
    make("image", { href: picture(), x: LEFT, y: 0, width: SIDE, height: SIDE, preserveAspectRatio: "none",
      style: "image-rendering: pixelated" }, svg);
  } else {
    for (let i = 0; i <= blocks + 1; i++) {
      const at = i * c;
      make("path", { d: `M${LEFT + at} 0V${SIDE}M${LEFT} ${at}H${LEFT + SIDE}`, class: "gl-map-grid" }, svg);
    }
    for (const y of [SIDE - 34, SIDE - 14]) make("text", { x: LEFT + 12, y, class: "gl-map-empty" }, svg);
  }
  for (let i = 0; i <= blocks; i += every) {
    const label = make("text", { x: LEFT - 6, y: (i + 0.5) * c + 4, class: "gl-map-tick", "text-anchor": "end" }, svg);
    label.textContent = i;
  }
  const strip = make("g", { class: "gl-map-strip" }, svg);
  for (let b = 0; b < blocks; b++) {
    make("rect", { x: blockX(b) + 0.6, y: STRIP_TOP, width: c - 1.2, height: STRIP_HEIGHT, rx: 2, "data-block": b,
      class: "gl-map-block" }, strip);
    if (b % every === 0) {
      const label = make("text", { x: blockX(b) + c / 2, y: STRIP_TOP + STRIP_HEIGHT + 14, class: "gl-map-tick",
        "text-anchor": "middle" }, svg);
      label.textContent = b;
    }
  }
  make("g", { class: "gl-map-marks", "pointer-events": "none" }, svg);
  mark();
}

function mark() {
  const marks = svg.querySelector(".gl-map-marks"), c = cell();
  marks.replaceChildren();
  const gone = new Set(gaps.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, i) => first + i)));
  for (const rect of svg.querySelectorAll(".gl-map-block")) {
    rect.classList.toggle("gl-gone", gone.has(Number(rect.dataset.block)));
  }
  for (const [first, last] of gaps) {
    const x = LEFT + first * c, size = (last + 2 - first) * c;
    make("rect", { x, y: first * c, width: size, height: size, class: "gl-map-halo" }, marks);
    make("rect", { x, y: first * c, width: size, height: size, class: "gl-map-range" }, marks);
    make("rect", { x: x + size - c, y: first * c, width: c, height: c, class: "gl-map-pair" }, marks);
    make("rect", { x: blockX(first) - 1.5, y: STRIP_TOP - 3, width: (last - first + 1) * c + 3,
      height: STRIP_HEIGHT + 6, rx: 4, class: "gl-map-range" }, marks);
    for (const edge of [blockX(first) - 1.5, blockX(last + 1) + 1.5]) {
      make("rect", { x: edge - 2.5, y: STRIP_TOP + 4, width: 5, height: STRIP_HEIGHT - 8, rx: 2.5,
        class: "gl-map-handle" }, marks);
    }
  }
  const idle = svg.querySelectorAll(".gl-map-empty");
  IDLE[gaps.length ? "chosen" : "nothing"].forEach((said, line) => { if (idle[line]) idle[line].textContent = said; });
  const text = describe();
  svg.setAttribute("aria-label", `Layer map: ${text}`);
  svg.setAttribute("aria-valuetext", text);
  svg.setAttribute("aria-valuemax", blocks - 1);
  svg.setAttribute("aria-valuenow", gaps.length ? gaps[0][0] : 0);
  says.textContent = text[0].toUpperCase() + text.slice(1) + similarityOf(gaps);
}

function similarityOf(ranges) {
  if (!cosine || ranges.length !== 1) return "";
  const [first, last] = ranges[0];
  return `, cosine ${(cosine[first * (blocks + 1) + last + 1] / 10000).toFixed(3)}`;
}

function choose(first, last) {
  // One block must survive: a range that covers the whole model loses its last block.
  if (last - first + 1 >= blocks) last -= 1;
  gaps = last < first ? [] : [[first, last]];
  mark();
  const text = JSON.stringify(gaps);
  if (text !== told) {
    told = text;
    props.value = JSON.stringify({ blocks, gaps, cosine: read.cosine });
    // The handler reads the value, not the event: of several quick events the last answer then tells the last range.
    setTimeout(() => trigger("pick"), 0);
  }
}

function place(event) {
  const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
  const x = ((event.clientX - box.left) / box.width) * view.width - LEFT;
  const y = ((event.clientY - box.top) / box.height) * view.height;
  const state = (at) => clamp(Math.floor(at / cell()), 0, blocks);
  return {
    onMap: y < SIDE, column: state(x), row: state(y),
    block: clamp(Math.floor(x / cell() - 0.5), 0, blocks - 1), exact: x / cell() - 0.5,
  };
}

function grab(at) {
  if (at.onMap) return { kind: "pair" };
  const [first, last] = gaps.length === 1 ? gaps[0] : [-9, -9];
  const near = Math.max(0.45, 7 / cell());
  if (first >= 0 && Math.abs(at.exact - first) < near && last > first) return { kind: "new", from: last };
  if (first >= 0 && Math.abs(at.exact - last - 1) < near && last > first) return { kind: "new", from: first };
  if (at.block >= first && at.block <= last) return { kind: "move", offset: at.block - first, size: last - first };
  return { kind: "new", from: at.block };
}

function follow(at) {
  if (drag.kind === "pair") {
    const low = Math.min(at.column, at.row), high = Math.max(at.column, at.row);
    choose(Math.min(low, blocks - 1), Math.max(high - 1, Math.min(low, blocks - 1)));
  } else if (drag.kind === "move") {
    const first = clamp(at.block - drag.offset, 0, blocks - 1 - drag.size);
    choose(first, first + drag.size);
  } else {
    choose(Math.min(drag.from, at.block), Math.max(drag.from, at.block));
  }
}

svg.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  svg.setPointerCapture(event.pointerId);
  const at = place(event);
  drag = grab(at);
  follow(at);
});
svg.addEventListener("pointermove", (event) => {
  const at = place(event);
  if (drag) return follow(at);
  if (!at.onMap) {
    hint.textContent = `Block ${at.block}: drag to choose a range, drag the range to move it.`;
  } else {
    const value = cosine ? `, cosine ${(cosine[at.row * (blocks + 1) + at.column] / 10000).toFixed(3)}` : "";
    hint.textContent = `States ${at.row} and ${at.column}${value}`;
  }
});
for (const name of ["pointerup", "pointercancel"]) svg.addEventListener(name, () => { drag = null; });
svg.addEventListener("pointerleave", () => { hint.textContent = ""; });

svg.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
  const jump = { Home: -blocks, End: blocks }[event.key];
  if (step === undefined && jump === undefined) return;
  event.preventDefault();
  if (!gaps.length) return choose(0, 0);
  const [first, last] = gaps[0], size = last - first;
  if (event.shiftKey) return choose(first, clamp(last + (step ?? jump), first, blocks - 1));
  const start = clamp(first + (step ?? jump), 0, blocks - 1 - size);
  choose(start, start + size);
});

function read() {
  if (!props.value) return;
  const value = typeof props.value === "string" ? JSON.parse(props.value) : props.value;
  const redraw = value.blocks !== blocks || value.cosine !== read.cosine;
  blocks = value.blocks;
  gaps = value.gaps;
  told = JSON.stringify(gaps);
  read.cosine = value.cosine;
  cosine = value.cosine
    ? new Int16Array(Uint8Array.from(atob(value.cosine), (letter) => letter.charCodeAt(0)).buffer) : null;
  if (redraw) draw(); else mark();
}

read();
watch("value", read);
