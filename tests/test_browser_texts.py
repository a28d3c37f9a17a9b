"""The texts side by side in a real browser: cards, keys, pins, tints, growth, failure, a phone, examples."""

import threading

import gradio as gr
import pytest
from browser import opened
from fake_run import NASTY, held, make_run
from pages import number, press_run, served

from analysis.panels import prompt

pytestmark = pytest.mark.browser


def test_model_output_is_shown_literally(browser):
    with served(make_run(pace=0.004, steps=2, pieces=NASTY)) as address, opened(browser, address) as page:
        page.fill("#gl-prompt textarea", "".join(NASTY))
        press_run(page)
        page.wait_for_selector("#gl-run:enabled", timeout=60_000)
        page.wait_for_timeout(500)
        assert page.input_value("#gl-prompt textarea") == "".join(NASTY)
        text = page.locator(".gl-text").first.text_content()
        assert "".join(NASTY) in text
        for index, piece in enumerate(NASTY):
            token(page, 0, index).hover()
            assert page.inner_text(".gl-card .gl-piece") == seen(piece)
            likely = page.locator(".gl-card-list").first.locator("li span").all_inner_texts()
            assert set(likely) <= {seen(each) for each in NASTY} and len(likely) == 5
        assert page.locator(".gl-text img, .gl-text script, .gl-card img, .gl-card script").count() == 0
        assert "<b>bold</b>" in page.inner_text("#gl-notices")
        assert page.faults == []


def token(page, column, index):
    return page.locator(".gl-column").nth(column).locator(".gl-t").nth(index)


def seen(piece):
    return piece.replace(" ", "\u2423").replace("\n", "\u21b5")


def lit(page):
    """Which token is lit in each column, and which of them the card is about."""
    return page.evaluate("""() => [...document.querySelectorAll('.gl-column')].map(column => {
        const all = [...column.querySelectorAll('.gl-t')];
        return [all.findIndex(t => t.matches('.gl-lit')), all.findIndex(t => t.matches('.gl-about'))] })""")


def test_a_token_shows_its_card_and_lights_the_same_place_in_every_column(page):
    press_run(page, new_tokens="12")
    token(page, 4, 9).hover()
    page.wait_for_selector(".gl-card:visible")
    assert lit(page) == [[9, 9 if column == 4 else -1] for column in range(6)]
    said = page.inner_text(".gl-card")
    assert "token 9 of ghosted" in said and "KL from the original" in said and "surprisal 0.48 nats" in said
    assert page.locator(".gl-card-head").all_inner_texts() == ["ghosted", "original, here"]
    assert page.locator(".gl-card li").count() == 10
    assert page.locator(".gl-card li small").first.inner_text() == "62 %"
    assert page.locator(".gl-card .gl-written").count() == 2
    token(page, 4, 7).hover()
    assert "First token that differs." in page.inner_text(".gl-card")
    token(page, 4, 2).hover()
    assert page.locator(".gl-card-list").nth(1).locator("li").count() == 5, "before it parts: the original's own"
    token(page, 0, 3).hover()
    assert page.locator(".gl-card-head").all_inner_texts() == ["original"]
    page.hover("h1")
    page.wait_for_selector(".gl-card", state="hidden")
    assert lit(page) == [[-1, -1]] * 6


def test_a_click_pins_the_card_and_escape_lets_it_go(page):
    press_run(page, new_tokens="12")
    token(page, 2, 4).click()
    token(page, 3, 6).hover()
    assert "token 4 of LinearPatch" in page.inner_text(".gl-card"), "a pinned card stays"
    page.keyboard.press("ArrowRight")
    assert "token 5 of LinearPatch" in page.inner_text(".gl-card")
    page.keyboard.press("Escape")
    assert page.locator(".gl-card.gl-pinned").count() == 0
    token(page, 2, 4).click()
    page.click(".gl-card button")
    assert page.locator(".gl-card.gl-pinned").count() == 0
    token(page, 2, 4).click()
    page.click("h1")
    page.wait_for_selector(".gl-card", state="hidden")


def test_arrow_keys_walk_the_tokens_from_one_tab_stop_per_column(page):
    press_run(page, new_tokens="12")
    assert page.locator(".gl-text .gl-t[tabindex='0']").count() == 6
    page.focus(".gl-tints input:checked")
    page.keyboard.press("Tab")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert lit(page) == [[2, 2 if column == 2 else -1] for column in range(6)]
    assert "token 2 of LinearPatch" in page.inner_text(".gl-card")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("End")
    assert "token 11 of LinearPatch" in page.inner_text(".gl-card")
    page.keyboard.press("Enter")
    page.keyboard.press("Home")
    assert "token 0 of LinearPatch" in page.inner_text(".gl-card.gl-pinned")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert "token 0 of ReplaceMe" in page.inner_text(".gl-card")
    assert page.locator(".gl-text .gl-t[tabindex='0']").count() == 6


def test_the_tint_is_switched_without_the_server(page):
    press_run(page, new_tokens="12")
    assert page.locator(".gl-tints input:checked").evaluate("e => e.value") == "kl"
    page.wait_for_selector("#gl-run:enabled", timeout=60_000)
    page.evaluate("document.querySelector('#gl-panel-generations').scrollIntoView()")
    page.wait_for_timeout(2500)  # the pictures near the window are drawn by then
    calls = []
    page.on("request", lambda request: calls.append(request.url))
    depth = "e => getComputedStyle(e).backgroundColor"
    before = [token(page, 0, 0).evaluate(depth), token(page, 5, 10).evaluate(depth)]
    page.get_by_label("surprisal", exact=True).check()
    after = [token(page, 0, 0).evaluate(depth), token(page, 5, 10).evaluate(depth)]
    assert before[0] == "rgba(0, 0, 0, 0)" or before[0].endswith(", 0)")
    assert not after[0].endswith(", 0)") and after[1] != before[1]
    token(page, 3, 3).hover()
    assert calls == []


def test_texts_grow_without_moving_anything_and_keep_tint_and_pin(browser):
    gates = {count: threading.Event() for count in (8, 100, 110)}
    ends = ("share => [...document.querySelectorAll('.gl-text')].every(t => "
            "Math.abs(t.scrollTop - share * (t.scrollHeight - t.clientHeight)) < 2)")
    scroll = "top => { document.querySelectorAll('.gl-text')[3].scrollTop = top }"
    tokens = "n => document.querySelectorAll('.gl-column:first-child .gl-t').length === n"
    heights = "() => ['#gl-columns', '.gl-text'].map(s => document.querySelector(s).offsetHeight)"
    try:
        with served(held(make_run(pace=0.001, steps=1), gates)) as address, opened(browser, address) as page:
            number(page, "New tokens").fill("120")
            page.click("#gl-run")
            page.wait_for_function(tokens, arg=8)
            page.get_by_label("surprisal", exact=True).check()
            token(page, 1, 2).click()
            start = page.evaluate(heights)
            gates[8].set()
            page.wait_for_function(tokens, arg=100)
            assert page.locator(".gl-cursor").count() == 6
            assert page.locator("[data-tint='surprisal']").count() == 1
            assert lit(page) == [[2, 2 if column == 1 else -1] for column in range(6)]
            page.wait_for_function(ends, arg=1)
            page.evaluate(scroll, 0)  # somebody scrolls away: the texts stay there while they grow
            gates[100].set()
            page.wait_for_function(tokens, arg=110)
            assert page.evaluate(ends, 0)
            page.evaluate(scroll, 10_000)  # and back: they follow their ends again, to the last token
            gates[110].set()
            page.wait_for_selector(".gl-done", timeout=60_000)
            page.wait_for_function(tokens, arg=120)
            page.wait_for_function(ends, arg=1)
            assert page.evaluate(heights) == start
            assert page.faults == []
    finally:
        for gate in gates.values():
            gate.set()


def test_long_columns_scroll_together(page):
    press_run(page, new_tokens="150")
    page.wait_for_function("() => [...document.querySelectorAll('.gl-column')].filter(c => c.querySelectorAll('.gl-t')"
                           ".length === 150).length === 6")
    rooms = "() => [...document.querySelectorAll('.gl-text')].map(t => t.scrollTop / (t.scrollHeight - t.clientHeight))"
    for top, share in ((10_000, 1.0), (0, 0.0)):
        page.evaluate("top => { document.querySelectorAll('.gl-text')[3].scrollTop = top }", top)
        page.wait_for_function(f"share => ({rooms})().every(at => Math.abs(at - share) < 0.02)", arg=share)
    token(page, 0, 149).evaluate("e => e.focus()")
    page.keyboard.press("ArrowDown")
    page.wait_for_function(f"() => ({rooms})().every(at => at > 0.9)")
    assert len(page.evaluate(rooms)) == 6


def test_one_failing_column_says_why_and_the_others_finish(browser):
    with served(make_run(pace=0.004, steps=1, fails=("linearpatch", 5))) as address, opened(browser, address) as page:
        press_run(page, new_tokens="12")
        texts = page.locator(".gl-column").evaluate_all("all => all.map(c => c.querySelectorAll('.gl-t').length)")
        assert texts == [12, 12, 5, 12, 12, 12]
        assert page.locator(".gl-column-error").all_inner_texts() == [
            "This model failed after 5 new tokens (RuntimeError)."]
        token(page, 0, 9).hover()
        assert lit(page)[2] == [-1, -1]
        assert page.faults == []


def test_a_card_fits_a_phone(browser, url):
    with opened(browser, url, width=390, height=800) as page:
        press_run(page, new_tokens="12")
        for index in (0, 5, 11):
            token(page, 4, index).click()
            box = page.locator(".gl-card").bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390
            assert box["y"] >= 0 and box["y"] + box["height"] <= 800
            page.keyboard.press("Escape")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.faults == []


def test_an_example_writes_the_prompt_at_once(browser):
    with gr.Blocks() as blocks:
        prompt.build()
    _, address, _ = blocks.launch(prevent_thread_lock=True, quiet=True)
    try:
        with opened(browser, address, ready="#gl-prompt textarea") as page:
            for each in (prompt.presets()[3], prompt.presets()[0], prompt.presets()[-2]):
                page.click("#gl-preset input")
                page.get_by_role("option", name=each.label, exact=True).click()
                page.wait_for_function("text => document.querySelector('#gl-prompt textarea').value === text",
                                       arg=each.text)
                page.wait_for_function("chat => document.querySelector('#gl-chat input').checked === chat",
                                       arg=each.chat)
            page.click("#gl-prompt textarea")
            page.keyboard.type("!")
            page.wait_for_function("() => document.querySelector('#gl-preset input').value === ''")
            assert page.input_value("#gl-prompt textarea").replace("!", "") == prompt.presets()[-2].text
            assert page.faults == []
    finally:
        blocks.close()
