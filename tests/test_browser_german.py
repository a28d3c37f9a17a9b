"""The page as a German visitor sees it in Chromium: after a run, nothing of it is in English but what has to be."""

import re

import pytest
from browser import chromium, opened
from fake_run import make_run
from pages import served
from test_words import SAME, places

from analysis.words import catalogue, said

pytestmark = pytest.mark.browser

SEEN = """() => {
  const found = [], shows = (node) => node?.checkVisibility?.({ visibilityProperty: true }) ?? true;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const parent = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (text && !parent.closest("script, style, footer, .gl-text, .gl-strip, pre") && shows(parent)) found.push(text);
  }
  for (const node of document.querySelectorAll("body *")) {
    if (!shows(node) || node.closest("footer") || node.matches("input[type=checkbox]")) continue; // their values
    for (const name of ["aria-label", "placeholder", "title", "aria-valuetext", "data-stale"]) {
      if (node.getAttribute(name)) found.push(node.getAttribute(name).trim());
    }
  }
  return [...new Set(found)];
}"""
PANELS = """async () => {
  for (const panel of document.querySelectorAll("[id^='gl-panel-']")) {
    panel.scrollIntoView();
    await new Promise((resolve) => setTimeout(resolve, 120));
  }
  for (const button of document.querySelectorAll("#gl-more > button, #gl-code > button")) button.click();
}"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


def english(seen):
    """Return the texts of the catalogue that are seen in English: alone, or as a part where they are long."""
    found = []
    for key, texts in catalogue().items():
        if key in SAME:
            continue
        text = re.sub(r"\$[^$]*\$", "", texts["en"]).strip()
        if len(text) > 14 and not places(texts["en"]):
            found += [(key, each) for each in seen if text in each]
        elif not places(texts["en"]):
            found += [(key, each) for each in seen if text == each]
        elif len(re.sub(r"\{\w+\}|\W", "", text)) > 6:
            whole = re.compile(".+".join(map(re.escape, re.split(r"\{\w+\}", text))))
            found += [(key, each) for each in seen if whole.fullmatch(each)]
    return found


def test_who_asks_for_german_sees_german_whatever_their_browser_speaks(browser):
    with served(make_run(pace=0.001, steps=1)) as url, opened(browser, f"{url}?lang=de") as page:
        page.get_by_label(said("controls.new_tokens", "de"), exact=True).fill("6")
        before = page.evaluate(SEEN)
        page.click("#gl-run")
        page.wait_for_selector(".gl-done", timeout=60_000)
        page.evaluate(PANELS)
        page.wait_for_selector("#gl-plot-similarity .main-svg")
        page.wait_for_selector("#gl-plot-spectrum-singular .main-svg")
        seen = page.evaluate(SEEN)
        assert page.evaluate("document.documentElement.lang") == "de"
        assert not english(before) and not english(seen)
        assert said("scores.title", "de") in seen and said("similarity.norm_axis", "de") in seen
        page.set_viewport_size({"width": 390, "height": 800})
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.faults == []
