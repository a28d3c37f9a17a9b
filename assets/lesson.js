// The buttons of a lesson: what they ask for goes to the server with the event "act". The open lesson is written into the
// address, finished ones and answers are kept by this browser, and "Show me" brings the panel that a step is about into
// sight. A browser gives itself a random number, by which its guess counts once however often it reloads.
const DONE = "gl-lessons-done", ANSWERS = "gl-lessons-answers", BROWSER = "gl-lessons-browser";
const root = () => element.querySelector(".gl-lessons");

function kept(key, otherwise) {
  try { return JSON.parse(localStorage.getItem(key)) ?? otherwise; } catch { return otherwise; }
}

function keep(key, value) {
  try { localStorage.setItem(key, JSON.stringify(value)); } catch { /* private window */ }
}

function forget() {
  delete window.ghostedBrowser;
  try { for (const key of [DONE, ANSWERS, BROWSER]) localStorage.removeItem(key); } catch { /* nothing was kept */ }
}

function browser() {
  const fresh = () => [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");
  window.ghostedBrowser ??= kept(BROWSER, null) ?? fresh();
  keep(BROWSER, window.ghostedBrowser);
  return window.ghostedBrowser;
}

window.ghostedAnswers = () => JSON.stringify(kept(ANSWERS, {})); // told to the server as the page opens
const done = () => kept(DONE, []);
const finish = (name) => keep(DONE, [...new Set([...done(), name])]);

function point(name) {
  const panel = document.getElementById(`gl-panel-${name}`);
  if (!panel) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  panel.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  panel.classList.add("gl-pointed");
  setTimeout(() => panel.classList.remove("gl-pointed"), 3000);
}

function sheet() {
  const page = element.querySelector("[data-sheet]").dataset.sheet;
  window.open(URL.createObjectURL(new Blob([page], { type: "text/html" })), "_blank");
}

// The panels that would answer the question are covered: there, and in their place, but seen, reached and read by nobody.
function cover({ covers = "", why, uncover }) {
  for (const panel of document.querySelectorAll("#gl-main [id^='gl-panel-']")) {
    const covered = covers.split(" ").includes(panel.id.slice("gl-panel-".length));
    panel.toggleAttribute("data-covered", covered);
    let veil = panel.querySelector(":scope > .gl-cover");
    for (const part of panel.children)
      if (part !== veil && part !== panel.firstElementChild) part.toggleAttribute("inert", covered);
    if (!covered) { veil?.remove(); continue; }
    if (!veil) {
      veil = panel.appendChild(document.createElement("div"));
      veil.className = "gl-cover";
      veil.append(document.createElement("p"), document.createElement("button"));
      veil.lastChild.className = "gl-small";
      veil.lastChild.type = "button";
      veil.lastChild.addEventListener("click", () => {
        panel.tabIndex = -1;
        panel.focus({ preventScroll: true }); // its button goes
        trigger("act", { asked: JSON.stringify(["uncover", ""]) });
      });
    }
    veil.firstChild.textContent = why;
    veil.lastChild.textContent = uncover;
  }
  document.getElementById("gl-notices")?.toggleAttribute("inert", covers !== ""); // they name numbers of all panels
}

function marks() {
  for (const button of element.querySelectorAll("button[data-deed='open']"))
    button.toggleAttribute("data-done", done().includes(button.dataset.value));
}

function address() {
  marks();
  const open = root();
  if (!open) return; // the menu, or a lesson whose answer is still on its way
  cover(open.dataset);
  const here = new URL(location.href), { lesson, step, answer } = open.dataset, was = here.href;
  if (answer) keep(ANSWERS, { ...kept(ANSWERS, {}), [`${lesson}.${step}`]: JSON.parse(answer) });
  if (lesson) here.searchParams.set("lesson", `${lesson}.${step}`);
  else here.searchParams.delete("lesson");
  if (open.lang === "de" || here.searchParams.has("lang")) here.searchParams.set("lang", open.lang);
  // As the rest of the address is written: readable, commas and colons as they are.
  const readable = here.href.replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
  if (readable !== was) try { history.replaceState(history.state, "", readable); } catch { /* stays as it is */ }
}

function ask(button) {
  const { deed, value } = button.dataset;
  if (deed === "point") return point(value);
  if (deed === "print") return window.print();
  if (deed === "sheet") return sheet();
  element.querySelector("details")?.removeAttribute("open");
  if (deed === "forget") forget();
  if (deed === "finish") finish(root().dataset.lesson);
  const field = element.querySelector("input[name='gl-answer']:checked, input[type='text'][name='gl-answer']");
  trigger("act", { asked: JSON.stringify([deed, deed === "answer" ? field?.value ?? "" : value, browser()]) });
}

element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-deed]");
  if (button && !button.disabled) ask(button);
});

element.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("input[name='gl-answer']")) {
    event.preventDefault();
    ask(element.querySelector("button[data-deed='answer']"));
  }
  const step = { ArrowLeft: 0, ArrowRight: 1 }[event.key];
  if (step === undefined || event.target.matches("input")) return;
  const way = element.querySelectorAll("button[data-deed='go']")[event.key === "ArrowLeft" ? 0 : 1];
  if (way && !way.disabled) ask(way);
});

address();
watch("value", () => requestAnimationFrame(address));

element.addEventListener("toggle", marks, true); // what was finished since
// A menu closes by Escape and by a click elsewhere.
document.addEventListener("click", (event) => {
  if (!element.contains(event.target)) element.querySelector("details")?.removeAttribute("open");
});
element.addEventListener("keydown", (event) => {
  const menu = element.querySelector("details[open]");
  if (event.key !== "Escape" || !menu) return;
  menu.removeAttribute("open");
  menu.querySelector("summary").focus();
});
