// The text strip: which repair tints it, and the card of the token under the pointer or the keyboard. All numbers came
// with the text (data-numbers), so nothing here asks the server. A click or Enter keeps a token until the next one.
let now = null, kept = false;

const strip = () => element.querySelector(".gl-strip");
const three = (x) => {
  if (x === null || x === undefined) return "–";
  if (x === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(x)));
  return x.toLocaleString("en", { minimumFractionDigits: Math.max(2 - size, 0), maximumFractionDigits: Math.max(2 - size, 0) });
};

function numbers() {
  const box = element.querySelector(".gl-where");
  if (box && box !== numbers.box) { numbers.box = box; numbers.read = JSON.parse(box.dataset.numbers); now = null; kept = false; }
  return box ? numbers.read : null;
}

function tint(method) {
  const { ratios, steps } = numbers();
  [...strip().children].forEach((span, at) => {
    const ratio = ratios[method][at] ?? 0;
    span.className = span.className.replace(/gl-e\d/, `gl-e${steps.filter((step) => ratio >= step).length}`);
  });
}

function place(at) {
  const { window: size, sinks, norms } = numbers();
  const where = say("strip.place", { at, position: at % size }) + (sinks.includes(at) ? say("strip.is_sink") : "");
  return [where, say("strip.length", { length: three(norms[at]) })];
}

function card(span) {
  const box = element.querySelector(".gl-where-card"), { ratios } = numbers();
  strip().querySelector(".gl-now")?.classList.remove("gl-now");
  const at = [...strip().children].indexOf(span);
  now = at < 0 ? null : at;
  if (now === null) return;
  span.classList.add("gl-now");
  const text = span.textContent;
  box.querySelector(".gl-where-card-token").textContent = text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/ /g, "␣")
    || say("strip.part");
  const [where, length] = place(at);
  box.querySelector(".gl-where-card-place").textContent = where + (kept ? say("strip.kept") : "");
  box.querySelector(".gl-where-card-norm").textContent = length;
  box.querySelectorAll("b").forEach((cell, method) => { cell.textContent = three(ratios[method][at]); });
}

function keep(span) {
  kept = !(kept && [...strip().children].indexOf(span) === now);
  card(span);
}

function move(by) {
  const spans = strip().children;
  const at = Math.min(Math.max(now === null ? 0 : now + by, 0), spans.length - 1);
  card(spans[at]);
  spans[at].scrollIntoView({ block: "nearest", inline: "nearest" });
  const names = [...element.querySelectorAll(".gl-where-card li")];
  const said = names.map((row) => `${row.querySelector("span").textContent} ${row.querySelector("b").textContent}`);
  element.querySelector(".gl-unseen").textContent = say("strip.said", {
    token: spans[at].textContent.trim() || say("strip.blank"), place: place(at).join(". "), errors: said.join(", ") });
}

element.addEventListener("change", (event) => {
  if (numbers() && event.target.name === "gl-strip-method") tint(Number(event.target.value));
});
element.addEventListener("pointerover", (event) => {
  const span = event.target.closest?.(".gl-strip > span");
  if (span && numbers() && !kept) card(span);
});
element.addEventListener("click", (event) => {
  const span = event.target.closest?.(".gl-strip > span");
  if (span && numbers()) keep(span);
});
element.addEventListener("keydown", (event) => {
  if (!event.target.closest?.(".gl-strip") || !numbers()) return;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10, Home: -Infinity, End: Infinity }[event.key];
  if (step !== undefined) move(step);
  else if (event.key === "Enter" && now !== null) keep(strip().children[now]);
  else return;
  event.preventDefault();
});
