// Marks the panels that show something else than what the controls say, comes back to a run after a reload, and asks for
// the pictures of a panel when it comes near the window. props.value is JSON: {stale: {panel or "all": reason},
// source: "live" | "precomputed" | ..., preview: [panel], resume: bool, drawn: {panel: number}, opening: bool}; where a
// panel's number has changed, its pictures are of the past; language: "en" | "de", which the page speaks from now on, the
// server asked by the event "language" to say anew what it has said. While the answer that fills the controls is on its way they
// take no input, which it would overwrite; should it fail, they open after PATIENCE. Where the page opens with a run, its
// pictures are on their way: for so long, COMING at most, no panel asks for one.
const PATIENCE = 5000, COMING = 10000;
let drawn = {}, waiting = [], soon = 0, held = false, spoken = "en";

const panels = () => [...document.querySelectorAll("[id^='gl-panel-']")];
const nameOf = (panel) => panel.id.slice("gl-panel-".length);

const watcher = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    waiting.push(nameOf(target));
    setTimeout(() => target.removeAttribute("data-coming"), COMING);
  }
  if (waiting.length && !soon) soon = setTimeout(ask, 30);
}, { rootMargin: "500px 0px" });

function ask() {
  trigger("near", { panels: waiting });
  waiting = [];
  soon = 0;
}

function hold(opening) {
  held = opening;
  const parts = document.querySelectorAll("#gl-side, #gl-panel-layer_map");
  for (const part of parts) part.toggleAttribute("inert", opening);
  if (opening && !parts.length) requestAnimationFrame(() => held && hold(true)); // the page is still being put together
}

// What the style sheet says.
function badges() {
  for (const name of ["precomputed", "preview"])
    document.documentElement.style.setProperty(`--gl-said-${name}`, JSON.stringify(say(`bus.${name}`)));
}

// And, where the language has changed, what the other scripts and the server have said.
function speak(language) {
  const other = document.documentElement.lang !== language;
  document.documentElement.lang = window.ghostedLanguage = language;
  badges();
  if (other) document.dispatchEvent(new Event("gl-language"));
  if (language !== spoken) setTimeout(() => trigger("language"), 0);
  spoken = language;
}

function apply() {
  if (!props.value) return;
  const value = typeof props.value === "string" ? JSON.parse(props.value) : props.value;
  hold(value.opening);
  if (!value.opening) speak(value.language);
  document.getElementById("gl-main")?.setAttribute("data-source", value.source);
  for (const panel of panels()) {
    const name = nameOf(panel);
    const itself = panel.classList.contains("gl-own") || ["layer_map", "share"].includes(name);
    const reason = itself ? "" : value.stale[name] || value.stale.all || "";
    panel.toggleAttribute("data-preview", value.preview.includes(name));
    if (value.opening && value.source) panel.toggleAttribute("data-coming", !itself);
    if (reason) panel.dataset.stale = reason; else delete panel.dataset.stale;
  }
  for (const panel of panels()) {
    const name = nameOf(panel);
    if (!(value.drawn[name] > (drawn[name] || 0))) continue; // an answer that was overtaken
    drawn[name] = value.drawn[name];
    watcher.unobserve(panel);
    watcher.observe(panel);
  }
  if (value.resume) setTimeout(() => trigger("resume"), 0);
}

badges();
apply();
setTimeout(hold, PATIENCE, false);
watch("value", apply);
