// What the map shows, how it is told to the server, and what is believed of what comes back.
//
// `element`, `props`, `trigger` and `watch` are given by gr.HTML. props.value is JSON, made by analysis/map_value.py:
// {blocks, gaps, active, criterion, count, serial, data}; a key that is absent leaves what is shown as it is. From here
// it goes back without `data`, which is large. `serial` counts the choices made on this map: an answer to an older one
// is not believed, but answered by the newer one.
const SVG = "http://www.w3.org/2000/svg";
const root = element.querySelector(".gl-map");
const svg = root.querySelector("svg.gl-map-svg");
const part = (name) => root.querySelector(`.gl-map-${name}`);
// [position 0..1, r, g, b]: the diverging scale of analysis/palette.py, given by the page so that there is one truth.
const scale = JSON.parse(root.dataset.scale);

// Kept beside the component: where it is mounted anew its value is without the data.
const memory = (window.ghostedLayerMap ??= {});
const state = { blocks: 0, gaps: [], active: 0, criterion: "manual", count: 1, serial: 0 };
let answers = 0; // of the server that answer no choice of this map; the first is the page's, with what to open with
let data = {}; // {cosine, before, after, left: Float32Array of (L+1)² or null, choices, choice}
let view = "similarity", shown = null, running = false, touched = false, told = "";

function choose(gaps, active = 0, criterion = "manual") {
  active = clamp(active, 0, Math.max(gaps.length - 1, 0));
  const moved = !same(gaps, state.gaps);
  if (!moved && active === state.active && criterion === state.criterion) return;
  touched = touched || moved || criterion !== state.criterion;
  Object.assign(state, { gaps, active, criterion, serial: state.serial + 1 });
  if (criterion !== "manual") shown = criterion;
  mark();
  tell();
}

function write() {
  told = JSON.stringify(state);
  if (props.value !== told) props.value = told;
}

function tell() {
  write();
  // The handler reads the value, not the event: of several quick events the last answer then tells the last choice.
  setTimeout(() => trigger("pick"), 0);
}

function read() {
  if (!props.value || props.value === told) return;
  const value = typeof props.value === "string" ? JSON.parse(props.value) : props.value;
  const other = value.blocks !== undefined && value.blocks !== state.blocks;
  const redraw = other || ("data" in value && !same(value.data, memory.sent));
  if ("data" in value) memory.sent = value.data;
  if (redraw) data = unpacked(memory.sent, value.blocks ?? state.blocks);
  if (value.asked) { running = true; touched = false; }
  const stale = value.serial !== undefined && value.serial < state.serial;
  // What the link asks for may come after the visitor's first choice, which then stands, as it does over a run's blocks.
  const opening = state.blocks && value.serial === undefined && (answers += 1) === 1;
  const refused = !other && (stale || Boolean(touched && (opening || (value.found && running))));
  // A run that was started here has the controls as they were then; they may have been changed since.
  const keys = ["blocks", "gaps", "active", ...(value.found && running ? [] : ["criterion", "count"])];
  if (value.found) running = false;
  if (!refused) {
    const before = state.gaps;
    for (const key of keys) if (key in value) state[key] = value[key];
    if (!same(before, state.gaps) && "serial" in value) touched = true; // written into one of the forms
    if (state.criterion !== "manual") shown = state.criterion;
  }
  state.active = clamp(state.active, 0, Math.max(state.gaps.length - 1, 0));
  write();
  if (redraw) draw(); else mark();
  if (refused) tell();
  else if (value.follow && state.criterion !== "manual") follow(state.criterion);
}

// Numbers come as base64: the cosines as 16-bit integers (times 10,000), the errors of all ranges as half floats.
function unpacked(sent, blocks) {
  const n = blocks + 1, found = { choices: {}, ...(sent ?? {}) };
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  found.cosine = sent?.cosine ? Float32Array.from(new Int16Array(bytes(sent.cosine)), (each) => each / 10000) : null;
  if (found.cosine && found.cosine.length !== n * n) return { choices: {}, cosine: null };
  for (const name of ["before", "after", "left"]) {
    found[name] = null;
    if (!sent?.[name]) continue;
    const packed = new Uint16Array(bytes(sent[name]));
    found[name] = new Float32Array(n * n).fill(name === "after" ? NaN : 0);
    for (let i = 0, k = 0; i < n; i++) {
      for (let j = i + 1; j < n; j++, k++) found[name][i * n + j] = found[name][j * n + i] = half(packed[k]);
    }
  }
  return found;
}

function half(bits) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits & 32768 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}
