"""The text strip and the pictures beside it in a real browser, without the rest of the page: hover asks no server."""

import gradio as gr
import pytest
from browser import opened
from fake_run import NASTY, make_run

from analysis.page import ASSETS, look_and_feel
from analysis.panels import boundary, components, downstream, tokens
from analysis.record import Record
from ghosted.experiment import Experiment
from ghosted.progress import drain

pytestmark = pytest.mark.browser

READY = "#gl-plot-profile-sizes .main-svg"
NAMES = ("none", "linearpatch", "replaceme", "ghosted", "best")


def serve(remove="14-18", pieces=None):
    experiment = Experiment(remove=remove, methods=NAMES, prompt="x", max_new_tokens=1)
    record = Record.of(drain(make_run(pace=0, steps=1, pieces=pieces)(experiment)))
    with gr.Blocks(fill_width=True, analytics_enabled=False) as page:
        built = {}
        with gr.Column(elem_classes="gl-main"):
            for module in (boundary, tokens, downstream):
                with gr.Column(elem_classes="gl-panel"):
                    built[module] = module.build()
        outputs = [each for panel in built.values() for each in components(panel)]
        page.load(lambda: {part: update for module, panel in built.items()
                           for part, update in module.show(panel, record).items()}, None, outputs,
                  api_visibility="private")  # fmt: skip
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True,
                            **look_and_feel() | {"css_paths": sorted(ASSETS.glob("*.css"))})
    return page, url, record


@pytest.fixture(scope="module")
def served(browser):
    page, address, record = serve()
    yield address, record
    page.close()


@pytest.fixture
def page(browser, served):
    with opened(browser, served[0], ready=READY) as shown:
        yield shown
        assert shown.faults == []


def token(page, at):
    return page.locator(".gl-strip > span").nth(at)


def card(page):
    return page.inner_text(".gl-where-card").splitlines()


def test_pointing_at_a_token_tells_its_numbers_without_asking_the_server(page, served):
    found = served[1].run.profile
    assert any("median" in line for line in card(page))
    page.wait_for_timeout(500)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for at in (3, 0, 17):
        token(page, at).hover()
        place = "document.querySelector('.gl-where-card-place').textContent"
        page.wait_for_function(f"at => {place}.includes(`Token ${{at}}, `)", arg=at)
        shown = card(page)
        assert f"Token {at}, position {at} of its window" + ("; a sink" if at == 0 else "") in shown
        for name in NAMES:
            assert f"{found.methods[name].tokens[at]:.3g}"[:4] in " ".join(shown), name
    assert token(page, 17).get_attribute("class").split()[-1] == "gl-now"
    assert page.locator(".gl-now").count() == 1 and asked == []


def test_a_click_keeps_a_token_until_the_next_click(page):
    token(page, 2).click()
    token(page, 8).hover()
    assert "Token 2, position 2 of its window (kept)" in card(page)
    token(page, 2).click()
    token(page, 8).hover()
    assert "Token 8, position 8 of its window" in card(page)


def test_another_repair_tints_the_text_anew_without_asking_the_server(page, served):
    def steps():
        return page.evaluate("() => [...document.querySelectorAll('.gl-strip > span')].map("
                             "e => +e.className.match(/gl-e(\\d)/)[1])")  # fmt: skip

    before, asked = steps(), []
    page.wait_for_timeout(500)
    page.on("request", lambda request: asked.append(request.url))
    page.locator(".gl-strip-pick label", has_text="plain pruning").click()
    assert set(steps()) == {5} and before != steps()
    tint = page.evaluate("getComputedStyle(document.querySelector('.gl-strip .gl-e5')).backgroundColor")
    assert tint == "rgba(221, 122, 0, 0.44)"
    page.keyboard.press("ArrowRight")  # the radio group's own keys
    assert page.locator(".gl-strip-pick :checked").get_attribute("value") == "1" and steps()[0] == 6
    page.locator(".gl-strip-pick label", has_text="ghosted").click()
    assert steps() == before and asked == []
    assert page.locator(".gl-sink").first.is_visible()


def test_the_keyboard_reads_the_text_token_by_token(page):
    page.focus(".gl-strip")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    assert "Token 11, position 11 of its window" in card(page)
    said = page.text_content(".gl-where [role=status]")
    assert said.startswith("..") or "Token 11" in said
    assert "Error left: plain pruning 1.00, LinearPatch" in said
    page.keyboard.press("End")
    assert "Token 511, position 511 of its window" in card(page)
    assert page.evaluate("document.querySelector('.gl-strip').scrollTop") > 0
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert "Token 0, position 0 of its window; a sink (kept)" in card(page)
    outline = page.evaluate("getComputedStyle(document.querySelector('.gl-strip')).outlineStyle")
    assert outline == "solid"


def test_every_picture_is_drawn(page):
    for name in ("boundary", "profile-positions", "profile-channels", "profile-sizes", "downstream-error",
                 "downstream-cosine"):  # fmt: skip
        page.wait_for_selector(f"#gl-plot-{name} .main-svg")
    assert page.locator("#gl-plot-boundary .ytick text").count() == len(NAMES)
    assert page.locator(".gl-formula .katex").count() >= 8


@pytest.mark.parametrize("width", [390, *(pytest.param(w, marks=pytest.mark.soak) for w in (1280, 1920))])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_every_width_in_both_themes(browser, served, width, theme):
    with opened(browser, f"{served[0]}?__theme={theme}", width=width, ready=READY) as shown:
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        strip, box = (shown.locator(each).bounding_box() for each in (".gl-strip", ".gl-where-card"))
        assert strip["width"] > 250 and strip["height"] >= 236
        if width > 860:
            assert strip["y"] == box["y"] and abs(strip["height"] - box["height"]) < 1
            assert box["x"] >= strip["x"] + strip["width"]
        else:
            assert box["y"] >= strip["y"] + strip["height"]
        key = shown.locator(".gl-where-key").bounding_box()
        assert key["y"] >= max(each["y"] + each["height"] for each in (strip, box))
        assert shown.faults == []


def test_hostile_text_is_shown_as_it_is(browser):
    page, url, record = serve(pieces=NASTY)
    with opened(browser, url, ready=READY) as shown:
        text = shown.evaluate("document.querySelector('.gl-strip').textContent")
        assert text == "".join(record.run.profile.pieces) and "".join(NASTY) in text
        token(shown, 0).hover()
        shown.wait_for_function("document.querySelector('.gl-where-card-token').textContent.startsWith('<img')")
        shown.focus(".gl-strip")
        shown.keyboard.press("Home")
        assert "<img src=x onerror=alert(1)>. Token 0" in shown.text_content(".gl-where [role=status]")
        assert shown.locator(".gl-strip img, .gl-where-card img").count() == 0
        assert shown.faults == []
    page.close()


def test_nothing_removed_is_said_in_the_empty_state(browser):
    page, url, _ = serve(remove="")
    with opened(browser, url, ready="#gl-strip .gl-empty") as shown:
        shown.wait_for_function("document.querySelector('#gl-strip').innerText.includes('Nothing is removed')")
        assert shown.locator(".gl-where").count() == 0 and shown.faults == []
    page.close()
