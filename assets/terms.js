// What a term means, beside it: on hover, on focus and on tap. Escape, a tap elsewhere or leaving closes it. One box for all
// terms, on top of the page, so that nothing moves and no scrolling panel cuts it off.
const tip = document.body.appendChild(document.createElement("div"));
tip.id = "gl-means";
tip.setAttribute("role", "tooltip");
tip.hidden = true;
let told = null, leaving = 0;

function tell(term) {
  clearTimeout(leaving);
  if (told !== term) told?.removeAttribute("aria-describedby");
  told = term;
  if (term.title) {
    term.dataset.means = term.title;
    term.removeAttribute("title"); // the browser would show it as well, and to the mouse only
  }
  tip.textContent = term.dataset.means;
  term.setAttribute("aria-describedby", tip.id);
  tip.hidden = false;
  place();
}

function place() {
  const at = told.getClientRects()[0], { width, height } = tip.getBoundingClientRect(), edge = 8;
  const below = at.bottom + 4 + height <= innerHeight - edge;
  tip.style.left = `${Math.max(edge, Math.min(at.left, document.documentElement.clientWidth - width - edge))}px`;
  tip.style.top = `${below ? at.bottom + 4 : Math.max(edge, at.top - 4 - height)}px`;
}

function follow() { // a focused term is scrolled into sight, and one that is scrolled away says no more
  const at = told?.getClientRects()[0];
  if (at && (told === document.activeElement || (at.bottom > 0 && at.top < innerHeight))) place();
  else hush();
}

function hush() {
  clearTimeout(leaving);
  told?.removeAttribute("aria-describedby");
  told = null;
  tip.hidden = true;
}

const termOf = (event) => event.target.closest?.(".gl-term");
const stay = () => clearTimeout(leaving);

document.addEventListener("pointerover", (event) => {
  if (tip.contains(event.target)) stay(); // one may point at the words themselves
  else if (termOf(event)) tell(termOf(event));
});
document.addEventListener("pointerout", (event) => {
  if (!told || event.pointerType === "touch" || !(termOf(event) || tip.contains(event.target))) return;
  stay();
  leaving = setTimeout(() => told !== document.activeElement && hush(), 200);
});
document.addEventListener("focusin", (event) => termOf(event) ? tell(termOf(event)) : hush());
document.addEventListener("focusout", (event) => termOf(event) && hush());
document.addEventListener("click", (event) => {
  if (termOf(event)) tell(termOf(event));
  else if (!tip.contains(event.target)) hush();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && told) hush();
  else if (["Enter", " "].includes(event.key) && termOf(event)) {
    event.preventDefault();
    tell(termOf(event));
  }
});
document.addEventListener("scroll", (event) => told && event.target !== tip && follow(), true);
