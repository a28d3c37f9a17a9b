// By hand: pointer and keyboard. Hovering only reads; nothing asks the server.
let drag = null;

function place(event) {
  const box = svg.getBoundingClientRect(), zoom = svg.viewBox.baseVal.width / box.width;
  const x = (event.clientX - box.left) * zoom - LEFT, y = (event.clientY - box.top) * zoom;
  const at = (value) => clamp(Math.floor(value / cell()), 0, state.blocks);
  return {
    where: y < SIDE ? "map" : y < SCORES_TOP - 6 ? "strip" : "scores", column: at(x), row: at(y), y,
    block: clamp(Math.floor(x / cell() - 0.5), 0, state.blocks - 1), exact: x / cell() - 0.5,
  };
}

// What a drag from here changes: {others: gaps that stay, then how the new one follows the pointer}.
function grab(at, event) {
  const started = { x: event.clientX, y: event.clientY, moved: false, base: state.gaps };
  if (at.where === "scores") return null;
  if (at.where === "map") return { ...started, kind: "pair", others: event.shiftKey ? state.gaps : [] };
  const over = gapAt(state.gaps, at.block);
  if (event.shiftKey) return { ...started, kind: "span", from: at.block, others: state.gaps, putBack: over >= 0 };
  for (const [number, [first, last]] of state.gaps.entries()) {
    const others = state.gaps.filter((_, k) => k !== number);
    const near = Math.min(Math.max(0.45, 7 / cell()), 0.22 * (last - first + 1)); // its middle still moves a small gap
    if (last > first && Math.abs(at.exact - first) < near) return { ...started, kind: "span", from: last, others };
    if (last > first && Math.abs(at.exact - last - 1) < near) return { ...started, kind: "span", from: first, others };
    if (number === over) return { ...started, kind: "move", offset: at.block - first, size: last - first, others };
  }
  return { ...started, kind: "span", from: at.block, others: [] };
}

function followPointer(at) {
  let first, last, anchor;
  if (drag.kind === "pair") {
    first = Math.min(at.column, at.row, state.blocks - 1);
    last = Math.max(at.column - 1, at.row - 1, first);
  } else if (drag.kind === "move") {
    first = clamp(at.block - drag.offset, 0, state.blocks - 1 - drag.size);
    last = first + drag.size;
  } else {
    [first, last, anchor] = [Math.min(drag.from, at.block), Math.max(drag.from, at.block), drag.from];
  }
  const found = withGap(drag.others, first, last, state.blocks, anchor);
  if (found) choose(found.gaps, found.active);
}

svg.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  const at = place(event);
  drag = grab(at, event);
  if (!drag) return;
  svg.setPointerCapture(event.pointerId);
  // A finger on the picture may want to scroll the page: it picks when it is lifted, or once it moves sideways.
  drag.waits = drag.putBack || (event.pointerType === "touch" && at.where === "map");
  if (!drag.waits) followPointer(at);
});
svg.addEventListener("pointermove", (event) => {
  const at = place(event);
  here(at);
  if (!drag) return;
  drag.moved ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > (event.pointerType === "touch" ? 9 : 3);
  if (drag.moved || !drag.waits) followPointer(at);
});
svg.addEventListener("pointerup", (event) => {
  if (drag && drag.waits && !drag.moved) {
    if (drag.putBack) { const { gaps, active } = without(state.gaps, drag.from); choose(gaps, active); }
    else followPointer(place(event));
  }
  drag = null;
});
svg.addEventListener("pointercancel", () => { drag = null; });
svg.addEventListener("pointerleave", () => here(null));

function here(at) {
  const rect = part("here"), onMap = at?.where === "map" && data.cosine;
  rect.setAttribute("visibility", onMap ? "visible" : "hidden");
  if (onMap) {
    const box = { x: LEFT + at.column * cell(), y: at.row * cell(), width: cell(), height: cell() };
    for (const [key, value] of Object.entries(box)) rect.setAttribute(key, value);
  }
  if (!at) says("");
  else if (at.where === "map") says(saysPair(at.row, at.column));
  else if (at.where === "scores") says(saysScore(at.block, at.y));
  else if (gapAt(state.gaps, at.block) < 0) says(say("map.block", { block: at.block }));
  else says(say("map.block_gone", { block: at.block }));
}

function addGap() {
  const block = freePlace(state.gaps, state.blocks);
  const found = block === null ? null : withGap(state.gaps, block, block, state.blocks);
  if (found) choose(found.gaps, found.active);
  else says(say("map.full"));
}

function dropGap() {
  choose(state.gaps.filter((_, number) => number !== state.active), state.active);
}

function switchGap(step) {
  const n = state.gaps.length;
  if (n > 1) choose(state.gaps, (state.active + step + n) % n, state.criterion);
}

const KEYS = {
  "+": addGap, Insert: addGap, Delete: dropGap, Backspace: dropGap, "[": () => switchGap(-1), "]": () => switchGap(1),
};

svg.addEventListener("keydown", (event) => {
  const bracket = event.getModifierState("AltGraph"); // how some keyboards write [ and ]
  if (!bracket && (event.ctrlKey || event.metaKey || event.altKey)) return;
  const far = state.blocks;
  const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -far, End: far }[event.key];
  if (KEYS[event.key]) { event.preventDefault(); return KEYS[event.key](); }
  if (step === undefined) return;
  event.preventDefault();
  if (!state.gaps.length) return choose([[0, 0]]);
  const [first, last] = state.gaps[state.active], size = last - first;
  const others = state.gaps.filter((_, number) => number !== state.active);
  const start = event.shiftKey ? first : clamp(first + step, 0, state.blocks - 1 - size);
  const end = event.shiftKey ? clamp(last + step, first, state.blocks - 1) : start + size;
  const found = withGap(others, start, end, state.blocks, start);
  if (found) choose(found.gaps, found.active);
});
part("add").addEventListener("click", addGap);
part("drop").addEventListener("click", dropGap);

new ResizeObserver(([{ contentRect }]) => root.classList.toggle("gl-wide", contentRect.width >= 430)).observe(element);

says("");
read();
onLanguage(() => { says(""); draw(); });
watch("value", read);
