// The criteria: buttons that move the selection where the choice is known, and the strip of scores under the map.
const ROWS = 7; // candidates drawn where each is a set of blocks
const chipOf = (name) => root.querySelector(`[data-criterion='${CSS.escape(name)}']`);
const labelOf = (name) => chipOf(name)?.textContent ?? name;

// What a criterion chooses for the count that is set, with its scores: {per, higher, scores | sets, gaps}; null where
// the model must be asked first.
function known(name) {
  const found = data.choices?.[name], at = state.count - 1;
  if (found) {
    if (!found.gaps[at]) return null;
    return { ...found, gaps: found.gaps[at], scores: found.per === "block" ? found.scores : found.scores[at] };
  }
  const { choice } = data;
  return choice && choice.criterion === name && choice.count === state.count ? choice : null;
}

function follow(name) {
  const found = known(name);
  shown = name;
  choose(found ? found.gaps : state.gaps, found ? 0 : state.active, name);
  mark();
  if (!found) says(missing(name));
}

function missing(name) {
  const most = state.blocks - 1;
  if (!(state.count >= 1 && state.count <= most)) return say("map.many", { most, all: state.blocks });
  if (data.choices?.[name]) return say("map.cannot", { criterion: labelOf(name), count: state.count });
  return say(chipOf(name)?.dataset.outline ? "map.needs" : "map.asks", { criterion: labelOf(name) });
}

function drawCriteria() {
  for (const chip of root.querySelectorAll("[data-criterion]")) {
    chip.setAttribute("aria-pressed", chip.dataset.criterion === state.criterion);
  }
  const chip = root.querySelector("details [aria-pressed='true']"); // named where their list is closed
  part("more").textContent = chip ? say("map.more_chosen", { criterion: chip.textContent }) : say("map.more");
}

function drawScores() {
  const group = part("scores"), found = shown && known(shown), base = SCORES_TOP + SCORES_HEIGHT;
  group.replaceChildren();
  make("rect", { x: LEFT, y: SCORES_TOP, width: SIDE, height: SCORES_HEIGHT, rx: 3, class: "gl-map-well" }, group);
  if (!found) {
    const text = shown ? missing(shown) : say("map.no_scores");
    make("text", { x: LEFT + 10, y: SCORES_TOP + 25, class: "gl-map-caption" }, group, text);
    return;
  }
  const each = say(`map.per_${found.per}`, { count: state.count });
  const caption = { x: LEFT, y: base + 12, class: "gl-map-caption" };
  const text = make("text", caption, group, say(found.higher ? "map.higher" : "map.lower", { criterion: labelOf(shown), each }));
  requestAnimationFrame(() => { // asked now, its width would make the browser lay out the whole page once more
    if (!text.isConnected || text.getComputedTextLength() <= SIDE) return;
    text.setAttribute("textLength", SIDE);
    text.setAttribute("lengthAdjust", "spacingAndGlyphs");
  });
  if (found.per === "set") return drawSets(group, found);
  const [low, high, bounds] = limits(found);
  const starts = new Set(found.gaps.flatMap(([first, last]) =>
    (found.per === "start" ? [first] : Array.from({ length: last - first + 1 }, (_, k) => first + k))));
  found.scores.forEach((score, block) => {
    if (score === null) return;
    const height = 4 + (SCORES_HEIGHT - 6) * (high > low ? (clamp(score, low, high) - low) / (high - low) : 1);
    make("rect", { x: blockX(block) + 0.6, y: base - height, width: cell() - 1.2, height, "data-score": block,
      class: `gl-map-bar${starts.has(block) ? " gl-won" : ""}` }, group);
  });
  [base, SCORES_TOP + 9].forEach((y, end) => {
    make("text", { x: LEFT - 3, y, class: "gl-map-tick gl-small", "text-anchor": "end" }, group, bounds[end]);
  });
}

// The range of the bars with its labels. On the worse side it ends where single blocks are far from all others, such as
// the first and the last of a model, so that the better ones can be told apart.
function limits({ scores, higher }) {
  const real = scores.filter((score) => score !== null).sort((a, b) => a - b), fifth = Math.floor((real.length - 1) / 5);
  let low = real[0], high = real.at(-1);
  if (higher) low = Math.max(low, 2 * real[fifth] - high);
  else high = Math.min(high, 2 * real[real.length - 1 - fifth] - low);
  const past = (cut, value) => (cut ? `${higher ? "≤" : "≥"}${Number(value.toPrecision(2))}` : three(value));
  return [low, high, [past(low > real[0], low), past(high < real.at(-1), high)]];
}

function drawSets(group, found) {
  const rows = found.sets.slice(0, ROWS), step = SCORES_HEIGHT / rows.length;
  rows.forEach(({ gaps, score }, row) => {
    for (const [first, last] of gaps) {
      make("rect", { x: blockX(first) + 0.6, y: SCORES_TOP + row * step + 1, width: (last - first + 1) * cell() - 1.2,
        height: Math.max(Math.min(step - 2, 9), 2), rx: 1, class: `gl-map-bar${row ? "" : " gl-won"}` }, group);
    }
  });
}

function saysScore(block, y) {
  const found = shown && known(shown);
  if (!found) return shown ? missing(shown) : "";
  if (found.per === "set") {
    const rows = found.sets.slice(0, ROWS), at = Math.floor(((y - SCORES_TOP) / SCORES_HEIGHT) * rows.length);
    const { gaps, score } = rows[clamp(at, 0, rows.length - 1)];
    return say("map.scores", { criterion: labelOf(shown), blocks: nameOf(gaps), score: three(score) });
  }
  const score = found.scores[block];
  if (score === null || score === undefined) return say("map.score_ends", { criterion: labelOf(shown), block });
  const what = found.per === "start" ? nameOf([[block, block + state.count - 1]]) : `${block}`;
  return say(what.includes("–") ? "map.scores" : "map.score", { criterion: labelOf(shown), blocks: what, score: three(score) });
}

const more = root.querySelector("details");

// The list of criteria that ask the model closes again by a choice, by Escape, and when the focus goes elsewhere.
function leave() {
  more.open = false;
  more.querySelector("summary").focus();
}
more.addEventListener("keydown", (event) => { if (event.key === "Escape" && more.open) leave(); });
more.addEventListener("focusout", (event) => { if (!more.contains(event.relatedTarget)) more.open = false; });

for (const chip of root.querySelectorAll("[data-criterion]")) {
  chip.addEventListener("click", () => {
    follow(chip.dataset.criterion);
    if (chip.closest("details[open]")) leave();
  });
  const strong = (on) => () => {
    for (const rect of svg.querySelectorAll(`.gl-map-outline[data-of='${CSS.escape(chip.dataset.criterion)}']`)) {
      rect.classList.toggle("gl-strong", on);
    }
  };
  for (const name of ["pointerenter", "focus"]) chip.addEventListener(name, strong(true));
  for (const name of ["pointerleave", "blur"]) chip.addEventListener(name, strong(false));
}
