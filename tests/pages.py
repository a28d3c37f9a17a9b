"""The page on the fake run, and the hands that use it: what the browser tests share."""

from __future__ import annotations

from contextlib import contextmanager

from fake_run import facts, measure, outlook, take

from analysis.limits import ALONE
from analysis.page import build_page, look_and_feel


@contextmanager
def served(run, first=None, **options):
    """Yield the address of a page whose runs are ``run``'s; ``first`` is the record that it opens with."""
    page = build_page(run, facts, first=lambda: first, measure=measure, take=take, outlook=outlook, **options)
    look = look_and_feel(options.get("limits", ALONE))
    try:
        _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **look)
        yield url
    finally:
        page.close()


def says(page):
    return page.get_attribute("#gl-map svg", "aria-label")


def number(page, label):
    return page.get_by_label(label, exact=True)


def wait_for_text(page, text):
    page.wait_for_function("text => document.querySelector('#gl-remove textarea, #gl-remove input').value === text",
                           arg=text)


def write_range(page, text):
    """Type the removed blocks, as a person does, and wait until the map shows them."""
    field = page.locator("#gl-remove textarea, #gl-remove input")
    field.click()
    field.press("Control+a")
    page.keyboard.type(text)
    shown = text.replace("-", "–")
    page.wait_for_selector(f"#gl-map svg[aria-label*=' {shown} (']")
    page.wait_for_function("() => document.querySelector('#gl-criterion input').value === 'chosen by hand'")


def choose_criterion(page, label):
    page.click("#gl-criterion input")
    page.get_by_role("option", name=label, exact=True).click()


def press_run(page, until=".gl-done", new_tokens="6"):
    number(page, "New tokens").fill(new_tokens)
    page.evaluate("s => document.querySelector(s)?.classList.remove(s.slice(1))", until)  # an earlier run's
    page.click("#gl-run")
    page.wait_for_selector(until, timeout=60_000)


def block(page, index):
    box = page.locator(f"#gl-map [data-block='{index}']").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page, start, end):
    page.mouse.move(*block(page, start))
    page.mouse.down()
    page.mouse.move(*block(page, (start + end) // 2), steps=3)
    page.mouse.move(*block(page, end), steps=3)
    page.mouse.up()


def see(page, plot):
    """Scroll to a figure, as a reader does, wait until it is drawn, and return it."""
    page.evaluate("n => document.querySelector('#gl-plot-' + n).closest('.gl-panel').scrollIntoView()", plot)
    return page.wait_for_selector(f"#gl-plot-{plot} .main-svg")
