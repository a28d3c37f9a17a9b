// The side-by-side texts: pointing at a token lights the same position in every column and shows a card with what the
// models found likely there. `element` and `watch` are given by gr.HTML, which patches the columns in place with each
// new value; what this script sets on them is therefore set again. Everything from a model is put in as text.
const BESIDE = 8;
const read = new WeakMap(), placed = new WeakMap();
const name = (column) => column.querySelector("header b").textContent;
const columns = () => [...element.querySelectorAll(".gl-column")];
const texts = () => [...element.querySelectorAll(".gl-text")];
const tokens = (column) => [...column.querySelectorAll(".gl-t")];

// What the card is about: [column, index], by number. The pinned one wins, then the hovered, then the focused.
let pinned = null, hovered = null, focused = null;
let count = 0, away = false;
const growing = new Set();  // by number: the columns whose text was growing when last seen

const page = element.closest(".gradio-container") ?? document.body;
const card = page.querySelector(":scope > .gl-card") ?? make("div", "gl-card", page);
card.setAttribute("role", "group");
card.setAttribute("aria-label", say("card.label"));
card.setAttribute("aria-live", "polite");
card.hidden = true;

function make(tag, classes, parent, text = "") {
  const node = document.createElement(tag);
  node.className = classes;
  node.textContent = text;
  parent.appendChild(node);
  return node;
}

function details(column) {
  const raw = column.dataset.details ?? "{}";
  if (read.get(column)?.raw !== raw) read.set(column, { raw, data: JSON.parse(raw) });
  return read.get(column).data;
}

function three(value) {
  const short = Number(value.toPrecision(3));
  return Math.abs(short) >= 1e-4 || !short ? String(short) : value.toExponential(2);
}

const nats = (value) => (value == null ? say("card.unknown") : say("card.nats", { number: three(value) }));
const seen = (piece) => piece.replaceAll(" ", "\u2423").replaceAll("\n", "\u21b5").replaceAll("\t", "\u21e5")
  || say("card.part");
const token = (at) => at && columns()[at[0]] && tokens(columns()[at[0]])[at[1]];
const about = () => token(pinned ?? hovered ?? focused);

function place(of) {
  const column = of.closest(".gl-column"), index = tokens(column).indexOf(of);
  return [columns().indexOf(column), index];
}

function list(title, top, written, parent) {
  const box = make("div", "gl-card-list", parent);
  make("p", "gl-card-head", box, title);
  if (!top) return make("p", "", box, say(top === undefined ? "card.not_kept" : "card.unknown"));
  const rows = make("ol", "", box);
  for (let i = 0; i < top.length; i += 2) {
    const row = make("li", top[i] && top[i] === written ? "gl-written" : "", rows);
    row.style.setProperty("--gl-share", `${100 * top[i + 1]}%`);
    make("span", "", row, seen(top[i]));
    make("small", "", row, `${three(100 * top[i + 1])} %`);
  }
}

function fill([number, index]) {
  const all = columns(), column = all[number], data = details(column), at = index - data.from;
  const original = number === 0, kept = at >= 0;
  let written = token([number, index]).textContent;
  const top = kept ? data.top?.[at] : undefined;
  // The first piece is shown without its space.
  if (index === 0 && top) written = top.find((each, i) => i % 2 === 0 && each.trimStart() === written) ?? written;
  card.replaceChildren();
  const head = make("div", "gl-card-top", card);
  make("b", "gl-piece", head, seen(written));
  make("span", "", head, say("card.token", { at: index, name: name(column) }));
  if (pinned) {
    const close = make("button", "", head, "\u00d7");
    close.type = "button";
    close.setAttribute("aria-label", say("card.unpin"));
    close.addEventListener("click", unpin);
  }
  const surprisal = say("card.surprisal", { value: kept ? nats(data.surprisal[at]) : say("card.dropped") });
  const kl = original ? "" : say("card.kl", { value: kept ? nats(data.kl[at]) : say("card.dropped") });
  make("p", "", card, (data.first === index ? say("card.first") : "") + kl + surprisal);
  const lists = make("div", "gl-card-lists", card);
  list(name(column), top, written, lists);
  if (!original) {
    const theirs = kept ? data.original[at] ?? null : undefined;
    list(say("card.original"), theirs === 0 ? details(all[0]).top?.[index - details(all[0]).from] : theirs, written, lists);
  }
}

function put(of) {
  const box = of.getBoundingClientRect(), width = card.offsetWidth, height = card.offsetHeight;
  const below = box.bottom + BESIDE + height <= innerHeight || box.top - BESIDE - height < 0;
  card.style.left = `${Math.max(BESIDE, Math.min(box.left, innerWidth - width - BESIDE))}px`;
  card.style.top = `${Math.max(0, below ? box.bottom + BESIDE : box.top - BESIDE - height)}px`;
}

function show() {
  const at = pinned ?? hovered ?? focused, of = about();
  for (const lit of element.querySelectorAll(".gl-lit, .gl-about")) lit.classList.remove("gl-lit", "gl-about");
  card.hidden = !of;
  card.classList.toggle("gl-pinned", !!pinned && !!of);
  if (!of) return;
  for (const column of columns()) tokens(column)[at[1]]?.classList.add("gl-lit");
  of.classList.add("gl-about");
  fill(at);
  put(of);
}

function unpin() {
  pinned = hovered = null;
  show();
}

function pin(at) {
  pinned = pinned && pinned[0] === at[0] && pinned[1] === at[1] ? null : at;
  show();
}

// One Tab stop per column: the token that was last walked to.
function rove() {
  columns().forEach((column, number) => {
    const stop = focused?.[0] === number ? focused[1] : 0;
    tokens(column).forEach((each, index) => { each.tabIndex = index === stop ? 0 : -1; });
  });
}

// Scrolling -------------------------------------------------------------------------------------------------------

function scrollTo(text, top) {
  text.scrollTop = top;
  placed.set(text, text.scrollTop);
}

const moved = (text) => placed.has(text) && Math.abs(placed.get(text) - text.scrollTop) >= 2;

function together(text) {
  if (placed.has(text) && !moved(text)) return;
  placed.set(text, text.scrollTop);
  const room = text.scrollHeight - text.clientHeight, share = room > 0 ? text.scrollTop / room : 0;
  away = share < 0.98;
  for (const other of texts()) {
    if (other !== text) scrollTo(other, share * (other.scrollHeight - other.clientHeight));
  }
}

function reveal(index) {
  for (const column of columns()) {
    const of = tokens(column)[index], text = of?.parentElement;
    if (!of) continue;
    const low = of.offsetTop + of.offsetHeight - text.clientHeight;
    if (text.scrollTop < low || text.scrollTop > of.offsetTop) scrollTo(text, text.scrollTop < low ? low : of.offsetTop);
  }
}

// Events, all on what stays ---------------------------------------------------------------------------------------

const under = (event) => event.target.closest?.(".gl-column .gl-t");

element.addEventListener("pointerover", (event) => {
  const of = event.pointerType !== "touch" && under(event);
  if (!of) return;
  hovered = place(of);
  if (!pinned) show();
});
element.addEventListener("pointerout", (event) => {
  if (!under(event)) return;
  hovered = null;
  if (!pinned) show();
});
element.addEventListener("click", (event) => { if (under(event)) pin(place(under(event))); });
element.addEventListener("focusin", (event) => {
  if (!under(event) || !under(event).matches(":focus-visible")) return;
  focused = place(under(event));
  rove();
  if (!pinned) show();
});
element.addEventListener("focusout", () => {
  focused = null;
  if (!pinned) show();
});
element.addEventListener("scroll", (event) => {
  if (event.target.classList?.contains("gl-text")) together(event.target);
}, true);
element.addEventListener("change", (event) => {
  if (event.target.name === "gl-tint") element.dataset.tint = event.target.value;
});
element.addEventListener("keydown", (event) => {
  const of = under(event);
  if (!of) return;
  const [number, index] = place(of), all = columns(), last = (at) => tokens(all[at]).length - 1;
  const beside = (at) => [at, Math.min(index, last(at))];
  const to = {
    ArrowRight: () => [number, index + 1], ArrowLeft: () => [number, index - 1],
    ArrowDown: () => beside(Math.min(number + 1, all.length - 1)), ArrowUp: () => beside(Math.max(number - 1, 0)),
    Home: () => [number, 0], End: () => [number, last(number)],
  }[event.key]?.();
  if (event.key === "Enter" || event.key === " ") pin([number, index]);
  else if (!to) return;
  event.preventDefault();
  if (!token(to)) return;
  if (pinned) pinned = to;
  reveal(to[1]);
  token(to).focus({ preventScroll: true });
  token(to).scrollIntoView({ block: "nearest" });
  show();
});

function everywhere(type, handle) {
  document.addEventListener(type, function handler(event) {
    if (element.isConnected) return handle(event);
    document.removeEventListener(type, handler, true);
    card.hidden = true;
  }, true);
}
everywhere("keydown", (event) => { if (event.key === "Escape" && pinned) unpin(); });
everywhere("click", (event) => {
  if (pinned && !under(event) && !event.composedPath().includes(card)) unpin();
});
everywhere("scroll", () => { if (!card.hidden && about()) put(about()); });

function update() {
  const before = count;
  count = Math.max(0, ...columns().map((column) => tokens(column).length));
  if (count < before) {  // another run
    pinned = hovered = null;
    away = false;
    growing.clear();
    for (const text of texts()) scrollTo(text, 0);
  }
  texts().filter(moved).forEach(together);  // by a hand whose event is still on its way
  // A growing text stays at its end, to its last token, unless somebody has scrolled away from it.
  texts().forEach((text, number) => {
    const grew = growing.has(number);
    growing[text.querySelector(".gl-cursor") ? "add" : "delete"](number);
    if (!away && (grew || growing.has(number))) scrollTo(text, text.scrollHeight);
  });
  rove();
  reword();
  if (!card.hidden || pinned) show();
}

onLanguage(() => card.setAttribute("aria-label", say("card.label")));
element.dataset.tint = "kl";
update();
watch("value", update);
