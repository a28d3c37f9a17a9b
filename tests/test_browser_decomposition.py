"""The panels about the operator and about similarity in a real browser, each without the rest of the page."""

from contextlib import contextmanager
from types import SimpleNamespace

import gradio as gr
import pytest
from browser import opened
from fake_run import make_run

from analysis.page import ASSETS, look_and_feel
from analysis.panels import decomposition, similarity
from analysis.record import Record
from analysis.session import Sessions
from ghosted.experiment import Experiment
from ghosted.progress import drain

pytestmark = pytest.mark.browser

PICTURES = (*(f"operator-{part}" for part in "WMSA"), "spectrum-plane", "spectrum-line", "spectrum-rotations",
            "spectrum-singular", "similarity", "influence", "norms", "cosines")


def record_of(remove="10,14-16", methods=("none", "linearpatch", "ghosted", "symmetric"), zooms=True):
    run = drain(make_run(pace=0, steps=1)(Experiment(remove=remove, methods=methods, criterion="manual",
                                                     prompt="x", max_new_tokens=1)))
    kept = Record.of(run).portraits
    if not zooms:
        kept = {name: type(picture).from_json(picture.to_json()) for name, picture in kept.items()}
    return SimpleNamespace(run=run, portraits=kept)


def serve(record):
    live = SimpleNamespace(shown_by=lambda panel, visitor: record, sessions=Sessions())
    with gr.Blocks(fill_width=True, analytics_enabled=False) as page:
        with gr.Column(elem_classes="gl-main"):
            with gr.Column(elem_classes="gl-panel"):
                panel = decomposition.build()
            with gr.Column(elem_classes="gl-panel"):
                alike = similarity.build()
        decomposition.wire(panel, live)
        outputs = [each for part in (*vars(panel).values(), *vars(alike).values())
                   for each in (part.values() if isinstance(part, dict) else (part,))]
        page.load(lambda: decomposition.show(panel, record) | similarity.show(alike, record), None, outputs,
                  api_visibility="private")
    looks = look_and_feel() | {"css_paths": sorted(ASSETS.glob("*.css"))}
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **looks)
    return page, url


@contextmanager
def shown(browser, url, **size):
    """Yield the page once all twelve pictures are drawn: half a minute on a busy machine."""
    with opened(browser, url, ready="h2", **size) as page:
        for name in PICTURES:
            page.wait_for_selector(f"#gl-plot-{name} .main-svg", timeout=120_000)
        yield page


@pytest.fixture(scope="module")
def url(browser):
    page, address = serve(record_of())
    yield address
    page.close()


@pytest.fixture
def page(browser, url):
    with shown(browser, url) as opened_page:
        yield opened_page
        assert opened_page.faults == []


def channels(page):
    return [page.get_by_label(label, exact=True).input_value() for label in decomposition.CHANNELS]


def wait_until_said(page, text):
    page.wait_for_function("text => document.querySelector('#gl-zoom-said').innerText.includes(text)", arg=text)


def test_every_picture_share_and_family_is_there(page):
    for name in PICTURES:
        assert page.wait_for_selector(f"#gl-plot-{name} .main-svg").bounding_box()["height"] > 200, name
    assert channels(page) == ["0", "63", "0", "63"]
    assert "S " in page.inner_text("#gl-shares")
    assert page.locator("#gl-families tbody tr").count() == 5
    assert "0.75" in page.inner_text("#gl-families tbody tr:nth-child(4)"), "what symmetric left"
    stretching = page.locator(".gl-part-s").first.bounding_box()
    assert stretching["width"] > 0.8 * page.locator(".gl-parted").first.bounding_box()["width"]
    assert stretching["height"] > 10
    assert page.locator(".gl-formula .katex").count() >= 5
    assert page.locator(".gl-empty:visible").count() == 0
    text = page.inner_text("body")
    assert "blocks in a row" in text
    assert "Sink at position 0" in text


def test_the_keyboard_zooms_and_goes_back(page):
    field = page.get_by_label("From channel, first", exact=True)
    field.fill("10")
    page.get_by_label("From channel, last", exact=True).fill("20")
    field.press("Enter")
    wait_until_said(page, "Channels 10–20 to 0–63: every entry.")
    page.wait_for_function("() => document.querySelector('#gl-plot-operator-A .js-plotly-plot').data[0].y0 === 10")
    page.focus("#gl-zoom-whole")
    page.keyboard.press("Enter")
    wait_until_said(page, "Every entry is shown.")
    assert channels(page) == ["0", "63", "0", "63"]


def test_a_box_drawn_on_a_map_zooms_all_of_them_and_a_double_click_goes_back(page):
    box = page.locator("#gl-plot-operator-M .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.25 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"], steps=5)
    page.mouse.up()
    wait_until_said(page, "every entry.")
    assert "Channels 1" in page.inner_text("#gl-zoom-said")
    first, last, *_ = (int(value) for value in channels(page))
    assert abs(first - 16) <= 1
    assert abs(last - 31) <= 1
    page.wait_for_function(
        "y => document.querySelector('#gl-plot-operator-S .js-plotly-plot')?.data?.[0].y0 === y", arg=first)
    page.wait_for_timeout(500)
    box = page.locator("#gl-plot-operator-M .nsewdrag").bounding_box()
    page.mouse.dblclick(box["x"] + 40, box["y"] + 40)
    wait_until_said(page, "Every entry is shown.")


def test_another_gap_and_another_operator_keep_the_part(page):
    page.get_by_label("From channel, last", exact=True).fill("31")
    page.click("#gl-zoom")
    wait_until_said(page, "Channels 0–31 to 0–63")
    page.get_by_label("blocks 14–16", exact=True).check()
    page.wait_for_function("document.body.innerText.includes('For ghosted, blocks 14-16')")
    page.get_by_label("LinearPatch", exact=True).check()
    page.wait_for_function("document.body.innerText.includes('For LinearPatch, blocks 14-16')")
    wait_until_said(page, "Channels 0–31 to 0–63")
    assert "no rotation" in page.inner_text("#gl-plot-spectrum-rotations")


def test_without_the_whole_operator_the_page_asks_for_a_run(browser):
    served, address = serve(record_of(zooms=False))
    try:
        with shown(browser, address) as page:
            wait_until_said(page, "Press Run to zoom")
            page.get_by_label("From channel, last", exact=True).fill("5")
            page.click("#gl-zoom")
            wait_until_said(page, "Press Run to zoom")
            assert page.evaluate("document.querySelector('#gl-plot-operator-W .js-plotly-plot').data[0].y0") == 0
            assert page.faults == []
    finally:
        served.close()


@pytest.mark.parametrize("width", [390, *(pytest.param(w, marks=pytest.mark.soak) for w in (1280, 1920))])
def test_small_multiples_fit_every_width(browser, url, width):
    with shown(browser, url, width=width) as page:
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        tops = [page.locator(f"#gl-plot-operator-{part}").bounding_box()["y"] for part in "WMSA"]
        assert len(set(tops)) == {390: 4, 1280: 2, 1920: 1}[width]
        for name in ("operator-A", "spectrum-plane", "norms", "cosines"):
            share = page.evaluate(
                "n => { const p = document.querySelector('#gl-plot-' + n); "
                "return p.querySelector('.main-svg').getBoundingClientRect().width / p.clientWidth }", name)
            assert share >= 0.9, name
