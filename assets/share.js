// The address bar as the experiment, the copied link, what a link hides, and the pictures as files. `element`, `props`
// and `watch` are given by gr.HTML. props.value is JSON: {query: string or null, cut: bool, address: string}; nothing
// here fetches or computes anything. BELONGS is put before this: {control: [what goes with it]}.
const KEPT = ["hide", "lesson", "embed", "lang"];
const button = element.querySelector(".gl-copy");
const said = element.querySelector(".gl-copied");
const field = element.querySelector(".gl-link-text");
let waiting = 0;

const read = () => (typeof props.value === "string" ? JSON.parse(props.value || "{}") : props.value || {});
const keyOf = (pair) => pair.split("=", 1)[0];
const pairs = (query) => query.replace(/^\?/, "").split("&").filter(Boolean);

// What the address says about the page stays as it is, letter by letter; gradio's own settings begin with "__".
function queryNow(copied) {
  const value = read(), here = pairs(location.search);
  if (value.query == null) return here.filter((pair) => !copied || !keyOf(pair).startsWith("__")).join("&");
  const own = pairs(value.query), written = new Set(own.map(keyOf));
  const kept = here.filter((pair) => !written.has(keyOf(pair))
    && (KEPT.includes(keyOf(pair)) || (!copied && keyOf(pair).startsWith("__"))));
  return [...own, ...kept].join("&");
}

function write() {
  waiting = 0;
  const query = queryNow(false), address = location.pathname + (query ? `?${query}` : "") + location.hash;
  if (address === location.pathname + location.search + location.hash) return;
  // Some browsers refuse when the address changes very often; the next change writes it.
  try { history.replaceState(history.state, "", address); } catch { /* stays as it is */ }
}

function link() {
  const query = queryNow(true);
  const base = /^https:/.test(read().address) ? read().address : location.origin + location.pathname;
  return base + (query ? `?${query}` : "");
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { /* not a secure page, or not allowed: the old way */ }
  field.hidden = false;
  field.value = text;
  field.focus();
  field.select();
  try { return document.execCommand("copy"); } catch { return false; }
}

const quiet = new WeakMap();
function tell(place, text) {
  clearTimeout(quiet.get(place));
  place.textContent = text;
  quiet.set(place, setTimeout(() => { quiet.delete(place); place.textContent = place === said ? lasting() : ""; }, 6000));
}

// What is true as long as the settings are as they are stays in sight.
const lasting = () => (read().cut ? say("link.long") : "");
function stay() {
  if (!quiet.has(said) && said.textContent !== lasting()) said.textContent = lasting();
}

button.addEventListener("click", async () => {
  const done = await copy(link());
  field.hidden = done;
  if (done) button.focus({ preventScroll: true });
  tell(said, done ? say("link.copied", { long: lasting() }) : say("link.press"));
});

document.addEventListener("click", async (event) => {
  const pressed = event.target.closest?.(".gl-copy-code");
  if (!pressed) return;
  const code = pressed.closest(".gl-code"), text = code.querySelector("pre");
  let done = false;
  try {
    await navigator.clipboard.writeText(text.textContent);
    done = true;
  } catch {
    getSelection().selectAllChildren(text);
    try { done = document.execCommand("copy"); } catch { /* it stays selected */ }
  }
  tell(code.querySelector(".gl-copied"), say(done ? "link.code_copied" : "link.code_press"));
});

function hide() {
  const given = new URLSearchParams(location.search);
  const names = (given.get("hide") || "").split(",").filter((name) => /^[\w-]{1,60}$/.test(name));
  const style = document.getElementById("gl-hidden") || document.head.appendChild(document.createElement("style"));
  style.id = "gl-hidden";
  const all = names.flatMap((name) => [name, ...(Object.hasOwn(BELONGS, name) ? BELONGS[name] : [])]);
  const empty = `#gl-side :is(.row, .form):has(.block):not(:has(.block:not(${all.map((name) => `#gl-${name}`)})))`;
  style.textContent = all.map((name) => `#gl-panel-${name}, #gl-plot-${name}, #gl-${name}`).concat(all.length ? empty : [])
    .map((each) => `${each} { display: none !important; }`).join("\n");
  document.documentElement.classList.toggle("gl-embedded", given.get("embed") === "1");
}

// Two buttons on every picture. Gradio puts a new picture into the same frame, so the buttons stay with the frame.
function fileName(frame) {
  const note = document.querySelector("#gl-shown [data-blocks]");
  const blocks = note && note.dataset.blocks ? `-blocks-${note.dataset.blocks.replaceAll(",", "_")}` : "";
  return frame.id.replace(/^gl-plot-/, "") + blocks;
}

function save(frame, format) {
  const drawn = frame.querySelector(".js-plotly-plot");
  if (!drawn || !window.Plotly) return undefined;
  // On white and with dark letters, whatever the page's theme: a file is mostly put into a document.
  const layout = { ...drawn.layout, paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff",
    font: { ...drawn.layout.font, color: "#3a3a3a" } };
  const { width, height } = drawn.getBoundingClientRect();
  return window.Plotly.downloadImage({ data: drawn.data, layout, config: { displayModeBar: false } },
    { format, filename: fileName(frame), width: Math.round(width), height: Math.round(height), scale: 2 });
}

function equip() {
  for (const frame of document.querySelectorAll(".gl-plot:not(:has(.gl-save))")) {
    const tools = document.createElement("div");
    tools.className = "gl-save";
    for (const format of ["png", "svg"]) {
      const tool = document.createElement("button");
      tool.type = "button";
      tool.textContent = format.toUpperCase();
      const name = frame.id.replace(/^gl-plot-/, "").replaceAll("-", " ");
      tool.setAttribute("aria-label", say("link.save", { name, format: tool.textContent }));
      tool.addEventListener("click", () => save(frame, format));
      tools.append(tool);
    }
    frame.append(tools);
  }
}

let looking = 0;
new MutationObserver(() => {
  if (!looking) looking = requestAnimationFrame(() => { looking = 0; equip(); });
}).observe(document.querySelector(".gradio-container") || document.body, { childList: true, subtree: true });

hide();
equip();
stay();
onLanguage(() => {
  stay();
  for (const tools of document.querySelectorAll(".gl-save")) tools.remove();
  equip();
});
window.addEventListener("popstate", hide);
watch("value", () => {
  stay();
  clearTimeout(waiting);
  waiting = setTimeout(write, 120);
});
