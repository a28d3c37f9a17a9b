// What is chosen, drawn on the picture and on the strip of blocks; what the criteria would choose, as outlines.
const HELP = matchMedia("(pointer: coarse)").matches ? "map.help_touch" : "map.help";
const DASHES = JSON.parse(root.dataset.dashes);

function mark() {
  const marks = part("marks"), c = cell();
  marks.replaceChildren();
  for (const rect of svg.querySelectorAll(".gl-map-block")) {
    rect.classList.toggle("gl-gone", gapAt(state.gaps, Number(rect.dataset.block)) >= 0);
  }
  state.gaps.forEach(([first, last], number) => {
    const active = number === state.active, more = active ? "" : " gl-other";
    const x = LEFT + first * c, size = (last + 2 - first) * c;
    make("rect", { x, y: first * c, width: size, height: size, class: "gl-map-halo" }, marks);
    make("rect", { x, y: first * c, width: size, height: size, class: `gl-map-range${more}` }, marks);
    make("rect", { x: x + size - c, y: first * c, width: c, height: c, class: `gl-map-pair${more}` }, marks);
    make("rect", { x: blockX(first) - 1.5, y: STRIP_TOP - 3, width: (last - first + 1) * c + 3,
      height: STRIP_HEIGHT + 6, rx: 4, class: `gl-map-range${more}` }, marks);
    if (!active) return;
    for (const edge of [blockX(first) - 1.5, blockX(last + 1) + 1.5]) {
      make("rect", { x: edge - 2.5, y: STRIP_TOP + 4, width: 5, height: STRIP_HEIGHT - 8, rx: 2.5,
        class: "gl-map-handle" }, marks);
    }
  });
  const idle = svg.querySelectorAll(".gl-map-empty");
  IDLE[state.gaps.length ? "chosen" : "nothing"].forEach((said, line) => {
    if (idle[line]) idle[line].textContent = said && say(said);
  });
  tellReaders();
  drawOutlines();
  drawScores();
  drawCriteria();
}

function tellReaders() {
  const text = describe(state.gaps, state.blocks), several = state.gaps.length > 1;
  svg.setAttribute("aria-label", say("map.label", { text }));
  const active = several ? nameOf([state.gaps[state.active]]) : "";
  const which = several
    ? say("map.active", { at: state.active + 1, all: state.gaps.length, blocks: active }) : "";
  svg.setAttribute("aria-valuetext", text + which);
  svg.setAttribute("aria-valuemax", state.blocks - 1);
  svg.setAttribute("aria-valuenow", state.gaps.length ? state.gaps[state.active][0] : 0);
  const [first, last] = state.gaps.length === 1 ? state.gaps[0] : [];
  const cosine = data.cosine && first !== undefined ? data.cosine[first * (state.blocks + 1) + last + 1] : NaN;
  const alike = Number.isNaN(cosine) ? "" : say("map.cosine", { cosine: three(cosine) });
  part("says").textContent = text[0].toUpperCase() + text.slice(1) + alike;
  part("add").setAttribute("aria-disabled", freePlace(state.gaps, state.blocks) === null);
  part("drop").setAttribute("aria-disabled", !state.gaps.length);
}

function says(text) {
  part("hover").textContent = text || say(HELP);
}

// Each criterion's own choice of `count` blocks, where the similarities alone tell it.
function drawOutlines() {
  const outlines = part("outlines"), c = cell();
  outlines.replaceChildren();
  for (const chip of root.querySelectorAll("[data-outline]")) {
    const name = chip.dataset.criterion, k = Number(chip.dataset.outline), inset = 0.8 * (k + 1);
    for (const [first, last] of known(name)?.gaps ?? []) {
      const at = { x: LEFT + first * c + inset, y: first * c + inset };
      const size = Math.max((last + 2 - first) * c - 2 * inset, 1), group = { "data-of": name };
      make("rect", { ...at, ...group, width: size, height: size, class: "gl-map-outline-halo" }, outlines);
      make("rect", { ...at, ...group, width: size, height: size, class: "gl-map-outline",
        "stroke-dasharray": DASHES[k % DASHES.length] }, outlines);
    }
  }
}

function saysPair(row, column) {
  const i = Math.min(row, column), j = Math.max(row, column), k = i * (state.blocks + 1) + j;
  const blocks = nameOf([[i, j - 1]]);
  const what = i === j ? say("map.state", { at: i }) : say(j - i === 1 ? "map.states_one" : "map.states", { i, j, blocks });
  if (!data.cosine) return what;
  const angle = (Math.acos(clamp(data.cosine[k], -1, 1)) * 180) / Math.PI;
  let text = say("map.pair", { what, cosine: three(data.cosine[k]), angle: three(angle) });
  if (data.before && i !== j) {
    text += say("map.errors", { before: three(data.before[k]), after: three(data.left[k]) });
    text += Number.isNaN(data.after[k]) ? "" : say("map.share", { share: three(100 * data.after[k]) });
  }
  const by = [...root.querySelectorAll("[data-outline]")].filter((chip) =>
    known(chip.dataset.criterion)?.gaps.some(([first, last]) => first === i && last + 1 === j));
  return by.length ? say("map.choice", { text, criteria: by.map((chip) => chip.textContent).join(", ") }) : text;
}
