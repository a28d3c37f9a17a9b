// The picture of all pairs of states, its colours and its legend.
const LEFT = 33, SIDE = 363, STRIP_TOP = SIDE + 8, STRIP_HEIGHT = 24;
const SCORES_TOP = STRIP_TOP + STRIP_HEIGHT + 22, SCORES_HEIGHT = 42;
const VIEWS = {
  similarity: { low: "map.unlike", high: "map.alike", place: (cosine) => 0.5 + Math.asin(cosine) / Math.PI },
  before: { low: "map.error_2", high: "", place: (error) => 1 - clamp(error, 0, 2) / 2 },
  left: { low: "map.error_2", high: "", place: (error) => 1 - clamp(error, 0, 2) / 2 },
  after: { low: "map.worse", high: "map.repaired", place: (share) => 1 - clamp(share, 0, 2) / 2 },
};
const IDLE = {
  nothing: ["map.idle", "map.idle_or"], chosen: ["map.idle_run", ""],
};

const cell = () => SIDE / (state.blocks + 1);
const blockX = (block) => LEFT + (block + 0.5) * cell();
const numbersOf = (name) => (name === "similarity" ? data.cosine : data[name]) ?? null;
// Errors come at the end of a run: until then the similarity stands in for them.
const shownView = () => (numbersOf(view) ? view : "similarity");

function make(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}

// Every picture in the same sense: the deeper the orange, the sooner these blocks can go. Cosines are coloured by their
// angle, for most of them crowd near 1.
function colour(at) {
  const upper = Math.max(1, scale.findIndex(([position]) => position >= at));
  const [p0, ...low] = scale[upper - 1], [p1, ...high] = scale[upper];
  return low.map((c, i) => Math.round(c + ((at - p0) / (p1 - p0)) * (high[i] - c)));
}

function picture(name) {
  const n = state.blocks + 1, numbers = numbersOf(name), { place } = VIEWS[name];
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = n;
  const context = canvas.getContext("2d"), image = context.createImageData(n, n);
  for (let k = 0; k < n * n; k++) {
    if (!Number.isNaN(numbers[k])) image.data.set([...colour(place(numbers[k])), 255], 4 * k);
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

function draw() {
  svg.replaceChildren();
  const c = cell(), every = state.blocks <= 12 ? 1 : state.blocks <= 40 ? 5 : 10, name = shownView();
  const clip = make("clipPath", { id: "gl-map-inside" }, svg);
  make("rect", { x: LEFT, y: 0, width: SIDE, height: SIDE }, clip);
  make("rect", { x: LEFT, y: 0, width: SIDE, height: SIDE, class: "gl-map-ground" }, svg);
  if (numbersOf(name)) {
    make("image", { href: picture(name), x: LEFT, y: 0, width: SIDE, height: SIDE, preserveAspectRatio: "none",
      style: "image-rendering: pixelated" }, svg);
  } else {
    for (let at = 0; at <= SIDE + 1; at += c) {
      make("path", { d: `M${LEFT + at} 0V${SIDE}M${LEFT} ${at}H${LEFT + SIDE}`, class: "gl-map-grid" }, svg);
    }
    for (const y of [SIDE - 34, SIDE - 14]) make("text", { x: LEFT + 12, y, class: "gl-map-empty" }, svg);
  }
  for (let i = 0; i <= state.blocks; i += every) {
    make("text", { x: LEFT - 6, y: (i + 0.5) * c + 4, class: "gl-map-tick", "text-anchor": "end" }, svg, i);
  }
  const strip = make("g", { class: "gl-map-strip" }, svg);
  for (let b = 0; b < state.blocks; b++) {
    make("rect", { x: blockX(b) + 0.6, y: STRIP_TOP, width: c - 1.2, height: STRIP_HEIGHT, rx: 2, "data-block": b,
      class: "gl-map-block" }, strip);
    if (b % every === 0) {
      make("text", { x: blockX(b) + c / 2, y: STRIP_TOP + STRIP_HEIGHT + 13, class: "gl-map-tick",
        "text-anchor": "middle" }, svg, b);
    }
  }
  make("g", { class: "gl-map-outlines", "pointer-events": "none", "clip-path": "url(#gl-map-inside)" }, svg);
  make("g", { class: "gl-map-marks", "pointer-events": "none" }, svg);
  make("g", { class: "gl-map-scores" }, svg);
  make("rect", { class: "gl-map-here", "pointer-events": "none", visibility: "hidden" }, svg);
  drawViews(name);
  mark();
}

function drawViews(name) {
  for (const button of root.querySelectorAll("[data-view]")) {
    const there = button.dataset.view === "similarity" || numbersOf(button.dataset.view) !== null;
    button.setAttribute("aria-checked", button.dataset.view === name);
    button.setAttribute("aria-disabled", !there);
    button.tabIndex = button.dataset.view === name ? 0 : -1;
    button.title = say(there ? `map.${button.dataset.view}_says` : "map.later");
  }
  const { low, high } = VIEWS[name], legend = part("legend"), from = name === "similarity" ? 0.5 : 0;
  legend.classList.toggle("gl-waits", !numbersOf(name));
  legend.children[0].textContent = say(low);
  legend.children[2].textContent = high ? say(high) : "0";
  const stops = Array.from({ length: 9 }, (_, k) => `rgb(${colour(from + ((1 - from) * k) / 8)})`);
  legend.children[1].style.backgroundImage = `linear-gradient(90deg, ${stops})`;
}

function look(name) {
  view = name;
  draw();
  says(say("map.shown", { what: say(`map.${name}_says`) }));
}

for (const button of root.querySelectorAll("[data-view]")) {
  button.addEventListener("click", () => {
    if (button.getAttribute("aria-disabled") !== "true") look(button.dataset.view);
    else says(say("map.later_run"));
  });
}
part("views").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const there = [...root.querySelectorAll("[data-view]:not([aria-disabled='true'])")];
  const next = there[(there.findIndex((each) => each.dataset.view === shownView()) + step + there.length) % there.length];
  look(next.dataset.view);
  next.focus();
});
