"""How people come and go: a first visit, a reload, a second browser, a keyboard alone, a screen reader."""

import dataclasses
import json

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import goto, opened
from fake_run import make_run
from pages import see, served

from analysis.record import Record
from analysis.settings import DEFAULT
from ghosted.progress import drain

pytestmark = pytest.mark.browser

FIRST_PICTURE = "#gl-map svg image"


@pytest.fixture(scope="module")
def visited(browser):
    """The page with a precomputed record of the fake run, and the experiments that were computed."""
    shown = drain(make_run(pace=0, steps=1)(dataclasses.replace(DEFAULT, text="generated", max_new_tokens=8)))
    calls = []

    def counted(experiment, cancel=None):
        calls.append(experiment)
        return (yield from make_run(pace=0.04, steps=15)(experiment, cancel=cancel))

    with served(counted, first=Record.of(shown, "precomputed")) as url:
        yield url, calls


def settle(page, until=".gl-done"):
    page.wait_for_selector(until, timeout=30_000)


def test_a_first_visit_shows_a_precomputed_run_and_a_side_by_side_needs_one_click(browser, visited):
    url, _ = visited
    with opened(browser, url, width=1440) as page:
        page.wait_for_selector(FIRST_PICTURE)
        since_start = page.evaluate("performance.now()")
        assert since_start < 5 * 3000
        assert page.locator(".gl-column").count() == 6, "the texts of the precomputed run stand there without a click"
        page.wait_for_selector("#gl-plot-boundary .main-svg")
        badge = "getComputedStyle(document.querySelector('#gl-panel-scores'), '::before').content"
        assert page.evaluate(badge) == '"precomputed"'
        assert "computed beforehand" in page.inner_text("#gl-status")
        assert page.input_value("#gl-remove textarea, #gl-remove input") == "10,14-16,22"
        assert page.get_by_label("First block").input_value() == page.get_by_label("Last block").input_value() == "10"
        see(page, "operator-W")
        page.wait_for_selector("#gl-operator input")
        page.click("#gl-run")
        settle(page)
        assert page.locator(".gl-column").count() == 6 and page.evaluate(badge) == "none"
        assert page.faults == []


def test_stage_count_and_time_left_are_told_while_earlier_pictures_stay_dimmed(browser, visited):
    url, _ = visited
    with opened(browser, f"{url}?seed=1") as page:
        page.wait_for_selector("#gl-plot-boundary .main-svg")
        page.click("#gl-run")
        page.wait_for_function("document.querySelector('#gl-panel-scores').dataset.stale?.includes('on its way')")
        told = "/: \\d+ of \\d+, about \\d+ s left/.test(document.querySelector('#gl-status').innerText)"
        page.wait_for_function(told)
        assert page.locator("#gl-plot-boundary .main-svg").count() > 0
        settle(page)
        page.wait_for_function("!document.querySelector('[data-stale]')")


def test_a_reload_during_a_run_comes_back_to_it_and_computes_nothing_twice(browser, visited):
    url, calls = visited
    with opened(browser, f"{url}?remove=3-6&seed=2") as page:
        page.wait_for_selector("#gl-map svg[aria-label*='3–6']")
        before = len(calls)
        page.click("#gl-run")
        page.wait_for_selector(".gl-busy")
        page.wait_for_timeout(700)
        page.reload()
        page.wait_for_selector("#gl-map svg[aria-label*='3–6']")
        settle(page)
        assert "removes blocks 3–6 (4 of 30)" in page.inner_text("#gl-status") and len(calls) == before + 1
        page.reload()
        settle(page)  # the finished result is at hand
        page.wait_for_selector("#gl-plot-boundary .main-svg")
        assert len(calls) == before + 1
        assert page.locator("#gl-runs tbody tr").count() == 1
        # What was under way when the page was reloaded, and what its event stream said of that.
        cut = ("AbortError", "errored out", "404", "network error")
        assert [fault for fault in page.faults if not any(each in fault for each in cut)] == []


def test_a_link_in_a_second_browser_shows_the_same_experiment_and_starts_nothing(browser, visited):
    url, calls = visited
    before = len(calls)
    with opened(browser, f"{url}?remove=2,12-14&methods=none,ghosted&temperature=0.5&seed=9&tokens=4096") as page:
        page.wait_for_selector("#gl-map svg[aria-label*='2, 12–14']")
        assert page.get_by_label("Temperature").input_value() == "0.5"
        address = page.evaluate("location.search")
        ticked = page.evaluate("[...document.querySelectorAll('#gl-methods input:checked')].map(i => i.name)")
        assert ticked == ["none", "ghosted"]
    other = browser.new_context().new_page()
    goto(other, url.rstrip("/") + "/" + address)
    other.wait_for_selector("#gl-map svg[aria-label*='2, 12–14']")
    assert other.get_by_label("Tokens", exact=True).input_value() == "4096"
    other.wait_for_timeout(500)
    assert len(calls) == before
    other.context.close()


def test_a_broken_link_opens_with_a_notice_and_sane_settings(browser, visited):
    url, _ = visited
    with opened(browser, f"{url}?remove=99-x&tokens=-5&methods=nonsense,ghosted") as page:
        page.wait_for_function("document.querySelector('#gl-status').innerText.includes('cannot be used')")
        assert page.get_by_label("Tokens", exact=True).input_value() == str(DEFAULT.tokens)
        assert page.faults == []


def test_the_keyboard_alone_gets_from_the_start_to_a_side_by_side(browser, visited):
    url, _ = visited
    with opened(browser, f"{url}?seed=3") as page:
        page.wait_for_selector(FIRST_PICTURE)
        reach(page, "#gl-map svg")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("document.querySelector('#gl-criterion input').value.includes('hand')")
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) != "none", "the focus must be seen"
        reach(page, "#gl-run", back=True)
        page.keyboard.press("Enter")
        settle(page)
        assert page.locator(".gl-column").count() == 6
        reach(page, ".gl-texts [tabindex='0']")
        assert page.faults == []


def reach(page, selector, back=False, most=120):
    """Press Tab until an element has the focus."""
    for _ in range(most):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        if page.evaluate("(s) => document.activeElement.matches(s)", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


def test_runs_are_pinned_opened_and_deleted(browser, visited):
    url, calls = visited
    with opened(browser, f"{url}?remove=5-6&seed=4") as page:
        page.wait_for_selector("#gl-map svg[aria-label*='5–6']")
        page.click("#gl-run")
        settle(page)
        page.fill("#gl-prompt textarea", "Another prompt")
        page.wait_for_function("document.querySelector('#gl-panel-generations').dataset.stale?.includes('prompt')")
        page.click("#gl-run")
        page.wait_for_function("document.querySelectorAll('#gl-runs tbody tr').length === 2", timeout=30_000)
        before = len(calls)
        page.get_by_role("button", name="Pin run 1").click()
        page.wait_for_function("document.querySelector('#gl-runs').innerText.includes('+0')")
        page.get_by_role("button", name="Open run 1").click()
        page.wait_for_function(
            f"document.querySelector('#gl-prompt textarea').value === {json.dumps(DEFAULT.prompt)}")
        assert len(calls) == before
        page.get_by_role("button", name="Delete run 2").click()
        page.wait_for_function("document.querySelectorAll('#gl-runs tbody tr').length === 1")
        assert page.faults == []


GRADIO_S_OWN = {
    "aria-allowed-attr", "aria-input-field-name", "aria-required-children", "color-contrast", "label",
    "nested-interactive", "scrollable-region-focusable", "button-name", "aria-valid-attr-value", "svg-img-alt",
}
"""Rules that parts made by gradio or plotly break; this list may shrink, not grow."""


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
def test_axe_finds_nothing_serious_in_our_own_parts(browser, visited, theme):
    url, _ = visited
    with opened(browser, f"{url}?__theme={theme}&seed=5", width=1440) as page:
        page.wait_for_selector(FIRST_PICTURE)
        page.click("#gl-run")
        settle(page)
        page.wait_for_selector("#gl-plot-boundary .main-svg")
        page.wait_for_timeout(1000)
        found = Axe().run(page).response["violations"]
        ours, theirs = [], set()
        for rule in found:
            if rule["impact"] not in ("serious", "critical"):
                continue
            for node in rule["nodes"]:
                if is_ours(page, node["target"][0]):
                    ours.append((rule["id"], node["html"][:160]))
                else:
                    theirs.add(rule["id"])
        assert ours == []
        assert theirs <= GRADIO_S_OWN, theirs - GRADIO_S_OWN


def is_ours(page, selector):
    """Whether an element was written by this project: inside a gr.HTML, and not a plotly figure."""
    selector = selector if isinstance(selector, str) else selector[-1]
    return page.evaluate(
        "(s) => { const e = document.querySelector(s); return !!e?.closest('.html-container') "
        "&& !e.closest('.js-plotly-plot'); }", selector)


def test_injected_text_is_shown_literally_wherever_it_comes_back(browser, visited):
    url, _ = visited
    nasty = "<img src=x onerror=alert(1)> ${alert(2)} `x` </script> {{value}}"
    with opened(browser, url) as page:
        page.fill("#gl-prompt textarea", nasty)
        page.locator("#gl-remove textarea, #gl-remove input").fill("")
        model = page.locator("#gl-model input")
        model.fill(nasty)
        model.press("Enter")
        page.wait_for_function("() => location.search.includes('model=%3Cimg')")
        page.click("#gl-run")
        page.wait_for_selector(".gl-done, .gl-failed", timeout=30_000)
        page.wait_for_function("() => /onerror|alert/.test(document.body.innerText)")
        assert page.locator("img[src='x']").count() == 0
        assert page.faults == []
