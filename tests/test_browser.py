"""The page in a real browser, on the fake run: every control, every picture, every width, both themes."""

import re
import threading

import gradio as gr
import pytest
from browser import chromium, opened
from fake_run import NASTY, facts, held, make_run
from test_figures import contrast

from analysis.page import build_page, look_and_feel
from analysis.panels import prompt

pytestmark = pytest.mark.browser

PLOTS = (
    "boundary", "operator-W", "operator-M", "operator-S", "operator-A", "spectrum-plane", "spectrum-line",
    "spectrum-rotations", "spectrum-singular", "similarity", "influence", "norms", "cosines", "profile-positions",
    "profile-channels", "profile-sizes", "downstream-error", "downstream-cosine",
)


def serve(run):
    page = build_page(run, facts)
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **look_and_feel())
    return page, url


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def url(browser):
    page, address = serve(make_run(pace=0.004, steps=4))
    yield address
    page.close()


@pytest.fixture(scope="module")
def slow_url(browser):
    page, address = serve(make_run(pace=0.05, steps=100))
    yield address
    page.close()


@pytest.fixture
def page(browser, url):
    with opened(browser, url) as shown:
        yield shown
        assert shown.faults == []


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


def test_the_page_opens_with_the_default_experiment(page):
    assert page.inner_text("h1") == "Ghosted Layers Explorer"
    assert says(page) == "Layer map: removes nothing (0 of 30)"
    assert "Removes nothing (0 of 30)" in page.inner_text("#gl-map")
    page.wait_for_function("() => [...document.querySelectorAll('.gl-range input[type=number]')].length === 2 && "
                           "[...document.querySelectorAll('.gl-range input[type=number]')].every(e => e.value === '')")
    assert page.input_value("#gl-criterion input") == "best (ours)" and number(page, "How many").input_value() == "5"
    assert "Press Run and best finds 5 blocks" in page.inner_text("#gl-status")
    assert "Drag here to choose blocks by hand" in page.text_content("#gl-map svg")
    ticked = page.evaluate("[...document.querySelectorAll('#gl-methods input:checked')].map(e => e.name)")
    assert ticked == ["none", "linearpatch", "replaceme", "ghosted", "best"]
    assert page.locator(".gl-empty:visible").count() >= 5
    assert not page.locator("#gl-stop").is_enabled()


def test_a_range_is_dragged_then_moved_on_the_strip(page):
    assert number(page, "How many").is_visible()
    drag(page, 2, 6)
    wait_for_text(page, "2-6")
    page.wait_for_function("() => document.querySelector('#gl-criterion input').value === 'chosen by hand'")
    page.wait_for_selector("#gl-count", state="hidden")
    assert "Press Run to see how alike" in page.text_content("#gl-map svg")
    assert says(page) == "Layer map: removes blocks 2–6 (5 of 30)"
    assert (number(page, "First block").input_value(), number(page, "Last block").input_value()) == ("2", "6")
    drag(page, 4, 12)
    wait_for_text(page, "10-14")


def test_a_cell_of_the_map_picks_the_blocks_between_its_states(page):
    box = page.locator("#gl-map .gl-map-ground").bounding_box()
    cell = box["width"] / 31
    page.mouse.click(box["x"] + 17.5 * cell, box["y"] + 12.5 * cell)
    wait_for_text(page, "12-16")
    assert "Removes blocks 12–16 (5 of 30)" in page.inner_text("#gl-map")


def test_arrow_keys_start_move_and_extend_the_range(page):
    page.focus("#gl-map svg")
    page.keyboard.press("ArrowRight")
    wait_for_text(page, "0")
    write_range(page, "14-18")
    page.focus("#gl-map svg")
    page.keyboard.press("ArrowRight")
    wait_for_text(page, "15-19")
    page.keyboard.press("Shift+ArrowRight")
    wait_for_text(page, "15-20")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("ArrowLeft")
    wait_for_text(page, "14-18")
    for _ in range(7):
        page.keyboard.press("ArrowLeft")
    wait_for_text(page, "7-11")
    page.keyboard.press("End")
    wait_for_text(page, "25-29")
    assert page.get_attribute("#gl-map svg", "aria-valuetext") == "removes blocks 25–29 (5 of 30)"
    outline = page.evaluate("getComputedStyle(document.querySelector('#gl-map svg')).outlineStyle")
    assert outline == "solid"


def test_numbers_and_text_move_the_map(page):
    number(page, "First block").fill("14")
    number(page, "Last block").fill("20")
    wait_for_text(page, "14-20")
    page.wait_for_selector("#gl-map svg[aria-label*='14–20 (7 of 30)']")
    write_range(page, "3, 12-17")
    page.wait_for_selector("#gl-map svg[aria-label*='removes blocks 3, 12–17 (7 of 30)']")
    assert number(page, "First block").input_value() == "3"


def test_backwards_numbers_get_one_sentence_beside_them_and_leave_the_criterion(page):
    number(page, "First block").fill("14")
    number(page, "Last block").fill("4")
    page.wait_for_selector("#gl-range-problem [role=alert]")
    assert page.inner_text("#gl-range-problem") == "The range 14-4 runs backwards; write 4-14."
    assert page.input_value("#gl-criterion input") == "best (ours)"
    page.click("#gl-run")
    page.wait_for_selector(".gl-done")
    wait_for_text(page, "10,14-16,22")
    page.wait_for_function("() => document.querySelector('#gl-range-problem').innerText === ''")
    page.wait_for_timeout(500)
    assert page.input_value("#gl-criterion input") == "best (ours)", "what a criterion writes is not chosen by hand"


def test_run_draws_every_picture_and_writes_every_column(page):
    press_run(page)
    for name in PLOTS:
        drawn = page.wait_for_selector(f"#gl-plot-{name} .main-svg")
        assert drawn.bounding_box()["height"] > 200, name
    assert page.locator(".gl-column").count() == 6
    assert page.locator(".gl-empty:visible").count() == 0
    assert page.locator("#gl-numbers tbody tr").count() == 6
    assert "8,176 tokens scored" in page.inner_text("#gl-numbers")
    assert "Removes blocks 10, 14–16, 22 (5 of 30)" in page.inner_text(".gl-map-says")
    assert page.locator("#gl-map image").count() == 1
    assert page.locator(".gl-formula .katex").count() >= 6
    said = page.inner_text("#gl-status")
    assert "self-check passed" in said
    assert "removes blocks 10, 14–16, 22 (5 of 30), chosen by best (ours), a near tie" in said
    assert page.locator("#gl-notices li").count() >= 3
    assert "runner-up: 14–18" in page.inner_text("#gl-notices .gl-choice")
    assert page.locator("#gl-operator input").evaluate_all("all => all.map(e => [e.value, e.checked])") == [
        ["linearpatch", False], ["ghosted", True]], "best has no operator to show, ghosted is the hero"


def test_a_range_by_hand_is_run_and_one_gap_tells_its_cosine(page):
    write_range(page, "14-18")
    press_run(page)
    assert "removes blocks 14–18 (5 of 30)." in page.inner_text("#gl-status")
    page.wait_for_selector("#gl-map image")
    assert ", cosine 0." in page.inner_text(".gl-map-says")


def test_nothing_removed_by_hand_runs_and_best_alone_has_no_operator(page):
    press_run(page)
    page.wait_for_selector("#gl-plot-operator-W .main-svg")
    for name in ("none", "linearpatch", "replaceme", "ghosted"):
        page.uncheck(f"#gl-methods input[name='{name}']")
    press_run(page)
    page.wait_for_function("() => document.body.innerText.includes('not linear in')")
    page.wait_for_selector("#gl-plot-operator-W .main-svg", state="detached")
    assert page.locator(".gl-empty:visible").count() == 8, "four maps and four spectra"
    field = page.locator("#gl-remove textarea, #gl-remove input")
    field.click()
    field.press("Control+a")
    field.press("Delete")
    page.wait_for_selector("#gl-map svg[aria-label*='removes nothing (0 of 30)']")
    page.wait_for_function("() => document.querySelector('#gl-criterion input').value === 'chosen by hand'")
    press_run(page)
    page.wait_for_function("() => document.querySelector('#gl-status').innerText.includes('removes nothing (0 of 30)')")
    page.wait_for_function("() => document.body.innerText.includes('Nothing is removed, so there is no operator.')")


def test_another_operator_is_drawn_on_demand(page):
    write_range(page, "14-18")
    page.check("#gl-methods input[name='ghosted-weighted']")
    press_run(page)
    page.wait_for_selector("#gl-operator input")
    page.get_by_label("ghosted, weighted").last.click()
    page.wait_for_function("document.body.innerText.includes('For ghosted, weighted, blocks 14-18')")
    assert page.get_by_label("ghosted, weighted").last.is_checked()


def test_stop_stops_and_the_next_run_works(browser, slow_url):
    with opened(browser, slow_url) as page:
        page.click("#gl-run")
        page.wait_for_function("/: [0-9]+ of 100, about/.test(document.querySelector('#gl-status').innerText)")
        page.wait_for_function("/Scoring ranges: [0-9]+ of 100, about [0-9]+ s left\\s+best: 450,560 more tokens/.test("
                               "document.querySelector('#gl-status').innerText)")
        assert not page.locator("#gl-run").is_enabled()
        page.click("#gl-stop")
        page.wait_for_selector(".gl-stopped", timeout=4000)
        assert "Stopped" in page.inner_text("#gl-status")
        page.wait_for_selector("#gl-run:enabled")
        page.click("#gl-run")
        page.wait_for_selector(".gl-busy")
        page.click("#gl-stop")
        page.wait_for_selector(".gl-stopped")
        assert page.faults == []


def test_ten_clicks_are_one_job(browser, slow_url):
    with opened(browser, slow_url) as page:
        page.evaluate("for (let i = 0; i < 10; i++) document.querySelector('#gl-run').click()")
        page.wait_for_selector(".gl-busy")
        page.wait_for_timeout(600)
        assert "already running" not in page.inner_text("#gl-status")
        page.click("#gl-stop")
        page.wait_for_selector(".gl-stopped")
        page.wait_for_timeout(600)
        assert page.locator(".gl-busy").count() == 0


def test_earlier_pictures_stay_while_the_next_run_goes_on(browser, url):
    with opened(browser, url) as page:
        press_run(page)
        page.wait_for_selector("#gl-plot-boundary .main-svg")
        page.click("#gl-run")
        assert page.locator("#gl-plot-boundary .main-svg").first.is_visible()
        page.wait_for_selector(".gl-done")


def test_bad_input_is_one_sentence_in_the_status_line(page):
    write_range(page, "14-18")
    number(page, "Tokens").fill("-4")
    page.click("#gl-run")
    page.wait_for_selector(".gl-failed")
    assert re.match(r"tokens must be a whole number from 2 to [\d,]+, not -4\.$", page.inner_text("#gl-status").strip())
    page.wait_for_timeout(500)
    assert says(page) == "Layer map: removes blocks 14–18 (5 of 30)", "a refused run leaves the page as it was"
    number(page, "Tokens").fill("16384")
    page.click("#gl-run")
    page.wait_for_selector(".gl-done")


def test_an_unknown_model_is_named_and_another_one_resizes_the_map(page):
    field = page.locator("#gl-model input")
    field.fill("missing")
    field.press("Enter")
    page.wait_for_selector("#gl-facts [role=alert]")
    assert "There is no model 'missing'" in page.inner_text("#gl-facts")
    field.fill("small")
    field.press("Enter")
    page.wait_for_selector("#gl-map svg[aria-label*='removes nothing (0 of 12)']")
    assert "12 blocks, width 64" in page.inner_text("#gl-facts")


def test_a_criterion_asks_for_a_count_and_its_choice_reaches_the_map(page):
    write_range(page, "1-2")
    page.wait_for_selector("#gl-count", state="hidden")
    choose_criterion(page, "cosine similarity")
    page.wait_for_selector("#gl-count:visible")
    press_run(page)
    wait_for_text(page, "12-16")
    page.wait_for_selector("#gl-map svg[aria-label*='removes blocks 12–16 (5 of 30)']")
    assert says(page) == "Layer map: removes blocks 12–16 (5 of 30)"


def test_an_uploaded_text_is_chosen_by_its_file_name(page, tmp_path):
    (tmp_path / "my words.txt").write_text("A few words of my own. " * 50)
    page.locator("#gl-upload, button:has-text('Upload a text')").last.wait_for()
    page.set_input_files("input[type=file]", tmp_path / "my words.txt")
    page.wait_for_function("document.querySelector('#gl-text input').value.endsWith('words.txt')")
    press_run(page)
    assert "Done" in page.inner_text("#gl-status")


def test_model_output_is_shown_literally(browser):
    served, address = serve(make_run(pace=0.004, steps=2, pieces=NASTY))
    try:
        with opened(browser, address) as page:
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
    finally:
        served.close()


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
    page.wait_for_timeout(500)
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
    gates = {8: threading.Event(), 100: threading.Event()}
    served, address = serve(held(make_run(pace=0.001, steps=1), gates))
    tokens = "n => document.querySelectorAll('.gl-column:first-child .gl-t').length === n"
    heights = "() => ['#gl-columns', '.gl-text'].map(s => document.querySelector(s).offsetHeight)"
    try:
        with opened(browser, address) as page:
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
            gates[100].set()
            page.wait_for_selector(".gl-done", timeout=60_000)
            page.wait_for_function(tokens, arg=120)
            assert page.evaluate(heights) == start
            assert page.locator(".gl-text").first.evaluate("e => e.scrollTop + e.clientHeight > e.scrollHeight - 2")
            assert page.faults == []
    finally:
        for gate in gates.values():
            gate.set()
        served.close()


def test_long_columns_scroll_together(page):
    press_run(page, new_tokens="150")
    rooms = "() => [...document.querySelectorAll('.gl-text')].map(t => t.scrollTop / (t.scrollHeight - t.clientHeight))"
    for top, share in ((10_000, 1.0), (0, 0.0)):
        page.evaluate("top => { document.querySelectorAll('.gl-text')[3].scrollTop = top }", top)
        page.wait_for_function(f"share => ({rooms})().every(at => Math.abs(at - share) < 0.02)", arg=share)
    token(page, 0, 149).evaluate("e => e.focus()")
    page.keyboard.press("ArrowDown")
    page.wait_for_function(f"() => ({rooms})().every(at => at > 0.9)")


def test_one_failing_column_says_why_and_the_others_finish(browser):
    served, address = serve(make_run(pace=0.004, steps=1, fails=("linearpatch", 5)))
    try:
        with opened(browser, address) as page:
            press_run(page, new_tokens="12")
            texts = page.locator(".gl-column").evaluate_all("all => all.map(c => c.querySelectorAll('.gl-t').length)")
            assert texts == [12, 12, 5, 12, 12, 12]
            assert page.locator(".gl-column-error").all_inner_texts() == [
                "This model failed after 5 new tokens (RuntimeError)."]
            token(page, 0, 9).hover()
            assert lit(page)[2] == [-1, -1]
            assert page.faults == []
    finally:
        served.close()


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


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_no_sideways_scroll_and_plots_as_wide_as_their_place(browser, url, width):
    with opened(browser, url, width=width) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        press_run(page)
        for name in PLOTS:
            page.wait_for_selector(f"#gl-plot-{name} .main-svg")
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for name in PLOTS:
            share = page.evaluate(
                "n => { const p = document.querySelector('#gl-plot-' + n); "
                "return p.querySelector('.main-svg').getBoundingClientRect().width / p.clientWidth }", name)
            assert share >= 0.9, name
        assert page.faults == []


def test_map_bars_and_first_lines_share_one_screen(browser, url):
    with opened(browser, url, width=1440) as page:
        press_run(page)
        page.wait_for_selector("#gl-plot-boundary .main-svg")
        assert page.locator("#gl-plot-boundary").bounding_box()["y"] < 300
        assert page.locator(".gl-text").first.bounding_box()["y"] < 880


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_in_figures_and_page_is_readable(browser, url, theme):
    with opened(browser, f"{url}?__theme={theme}") as page:
        press_run(page)
        page.wait_for_selector("#gl-plot-boundary .xtick text")
        page.wait_for_selector("#gl-plot-similarity .xtick text")
        panel = hexed(page.evaluate("getComputedStyle(document.querySelector('.gl-panel')).backgroundColor"))
        inked = {
            where: hexed(page.evaluate("([s, p]) => getComputedStyle(document.querySelector(s))[p]", [where, what]))
            for where, what in (
                ("#gl-plot-boundary .xtick text", "fill"), ("#gl-plot-boundary .ytick text", "fill"),
                ("#gl-plot-similarity .xtick text", "fill"), ("#gl-plot-boundary .xtitle", "fill"),
                (".gl-read", "color"), (".gl-column small", "color"), (".gl-text", "color"), (".gl-map-tick", "fill"),
                (".gl-table td", "color"), (".gl-warning", "color"), (".gl-verdict", "color"), (".gl-choice", "color"),
            )
        }
        faint = {where: contrast(colour, panel) for where, colour in inked.items() if contrast(colour, panel) < 4.5}
        assert not faint
        assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")


def hexed(css):
    return "#" + "".join(f"{int(float(part)):02x}" for part in re.findall(r"[\d.]+", css)[:3])
