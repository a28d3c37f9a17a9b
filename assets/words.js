// The page's words in its language, as analysis/speech.py says them on the server: which one, the link or the browser
// says, and later the server, whose word counts. WORDS is put before this: {key: [English, German]}.
document.documentElement.lang = window.ghostedLanguage ??= [new URLSearchParams(location.search).get("lang"),
  ...navigator.languages].map((each) => (each ?? "").toLowerCase().slice(0, 2)).find((each) => /^(en|de)$/.test(each)) ?? "en";
const say = (key, values = {}) => WORDS[key][document.documentElement.lang === "de" ? 1 : 0]
  .replace(/\{(\w+)\}/g, (place, name) => values[name] ?? place);
const onLanguage = (follow) => document.addEventListener("gl-language", function changed() {
  if (element.isConnected) follow();
  else document.removeEventListener("gl-language", changed);
});

// Says the words of the component's template: data-words is the text's key, data-words-title that of its title.
function reword() {
  for (const node of element.querySelectorAll("[data-words]")) node.textContent = say(node.dataset.words);
  for (const name of ["aria-label", "title"]) {
    for (const node of element.querySelectorAll(`[data-words-${name}]`)) {
      node.setAttribute(name, say(node.getAttribute(`data-words-${name}`)));
    }
  }
}
reword();
onLanguage(reword);
