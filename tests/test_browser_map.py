"""The layer map in a real browser: mouse, keyboard and finger, its criteria, and what the server is told."""

import pytest
from browser import goto, opened
from fake_run import make_run
from pages import block, choose_criterion, drag, number, press_run, says, served, wait_for_text, write_range

pytestmark = pytest.mark.browser

CHOSEN = "() => document.querySelector('#gl-criterion input').value"
BARS = "#gl-map .gl-map-scores .gl-map-bar"


@pytest.fixture
def run(page):
    """The page after a run."""
    press_run(page, new_tokens="2")
    page.wait_for_selector("#gl-map [data-view='left'][aria-disabled='false']")
    page.wait_for_selector("#gl-run:enabled")
    return page


def wait_for_criterion(page, label):
    page.wait_for_function(f"label => ({CHOSEN})() === label", arg=label)


def chip(page, name):
    return page.locator(f"#gl-map [data-criterion='{name}']")


def hover_pair(page, row, column, blocks=30):
    box = page.locator("#gl-map .gl-map-ground").bounding_box()
    size = box["width"] / (blocks + 1)
    page.mouse.move(box["x"] + (column + 0.5) * size, box["y"] + (row + 0.5) * size)
    return page.inner_text("#gl-map .gl-map-hover")


def requests_of(page):
    sent = []
    asks = ("/queue/join", "/run/")
    page.on("request", lambda request: sent.append(request.url) if any(a in request.url for a in asks) else None)
    return sent


def test_shift_adds_a_gap_extends_it_and_puts_a_block_back(page):
    drag(page, 2, 4)
    wait_for_text(page, "2-4")
    page.keyboard.down("Shift")
    drag(page, 10, 12)
    wait_for_text(page, "2-4,10-12")
    assert (number(page, "First block").input_value(), number(page, "Last block").input_value()) == ("10", "12")
    drag(page, 12, 14)
    wait_for_text(page, "2-4,10-14")
    page.mouse.click(*block(page, 12))
    wait_for_text(page, "2-4,10-11,13-14")
    drag(page, 5, 9)
    wait_for_text(page, "2-11,13-14")
    page.keyboard.up("Shift")
    drag(page, 13, 20)
    wait_for_text(page, "2-11,20-21")
    drag(page, 25, 27)
    wait_for_text(page, "25-27")
    wait_for_criterion(page, "chosen by hand")


def test_passing_over_another_gap_leaves_it_and_touching_it_makes_them_one(page):
    write_range(page, "3-4, 10-11")
    page.mouse.move(*block(page, 3))
    page.mouse.down()
    page.mouse.move(*block(page, 10), steps=4)
    page.mouse.move(*block(page, 20), steps=4)
    page.mouse.up()
    wait_for_text(page, "10-11,20-21")
    drag(page, 20, 12)
    wait_for_text(page, "10-13")
    assert "removes blocks 10–13 (4 of 30)" in says(page)


def test_the_edge_of_a_gap_is_dragged_and_one_block_always_stays(page):
    write_range(page, "5-9, 20")
    x, y = block(page, 9)
    half = page.locator("#gl-map [data-block='9']").bounding_box()["width"] / 2
    page.mouse.move(x + half, y)
    page.mouse.down()
    page.mouse.move(*block(page, 12), steps=4)
    page.mouse.up()
    wait_for_text(page, "5-12,20")
    drag(page, 0, 4)
    drag(page, 29, 0)
    wait_for_text(page, "1-29")
    assert says(page) == "Layer map: removes blocks 1–29 (29 of 30)"


def test_keys_alone_choose_several_gaps(page):
    page.focus("#gl-map svg")
    page.keyboard.press("ArrowRight")
    wait_for_text(page, "0")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("+")
    wait_for_text(page, "0-1,3")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    wait_for_text(page, "0-1,8-9")
    assert number(page, "First block").input_value() == "8"
    value = page.get_attribute("#gl-map svg", "aria-valuetext")
    assert value == "removes blocks 0–1, 8–9 (4 of 30); gap 2 of 2, 8–9, is active"
    page.keyboard.press("[")
    page.wait_for_function("document.querySelector('.gl-range input[type=number]').value === '0'")
    page.keyboard.press("End")
    wait_for_text(page, "8-9,28-29")
    page.keyboard.press("]")
    page.keyboard.press("ArrowLeft")
    wait_for_text(page, "7-8,28-29")
    page.keyboard.press("Insert")
    wait_for_text(page, "0,7-8,28-29")
    page.keyboard.press("Delete")
    wait_for_text(page, "7-8,28-29")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.wait_for_selector("#gl-map svg[aria-label*='removes nothing']")
    shortcuts = page.get_attribute("#gl-map svg", "aria-keyshortcuts")
    assert all(key in shortcuts.split() for key in ("ArrowLeft", "Shift+ArrowRight", "Insert", "Delete", "["))
    assert "Arrows move a gap" in page.inner_text("#gl-map .gl-map-hover")


def test_the_numbers_move_the_active_gap_and_the_others_stay(page):
    write_range(page, "3-4, 10-11")
    page.focus("#gl-map svg")
    page.keyboard.press("]")
    page.wait_for_function("document.querySelector('.gl-range input[type=number]').value === '10'")
    number(page, "Last block").fill("14")
    wait_for_text(page, "3-4,10-14")
    number(page, "First block").fill("5")
    wait_for_text(page, "3-14")
    assert "removes blocks 3–14 (12 of 30)" in says(page)


def test_twenty_quick_values_end_with_the_last_one_on_the_server(page):
    page.mouse.move(*block(page, 2))
    page.mouse.down()
    for end in range(3, 23):
        page.mouse.move(*block(page, end))
    page.mouse.up()
    wait_for_text(page, "2-22")
    page.wait_for_timeout(800)
    wait_for_text(page, "2-22")
    assert (number(page, "First block").input_value(), number(page, "Last block").input_value()) == ("2", "22")
    press_run(page, new_tokens="1")
    assert "removes blocks 2–22 (21 of 30)" in page.inner_text("#gl-status")


def test_a_criterion_at_hand_moves_the_blocks_at_once_and_shows_its_scores(run):
    page = run
    sent = requests_of(page)
    assert page.locator("#gl-map .gl-map-outline").count() >= 3
    chip(page, "cosine").click()
    assert says(page) == "Layer map: removes blocks 12–16 (5 of 30)", "before any answer of the server"
    assert page.locator(BARS).count() == 26 and page.locator(f"{BARS}.gl-won").count() == 1
    assert page.get_attribute(f"{BARS}.gl-won", "data-score") == "12"
    assert "cosine similarity, by first block of 5; higher is better" in page.text_content("#gl-map .gl-map-scores")
    wait_for_text(page, "12-16")
    wait_for_criterion(page, "cosine similarity")
    assert chip(page, "cosine").get_attribute("aria-pressed") == "true"
    bar, under = (page.locator(f"#gl-map [{each}='12']").bounding_box() for each in ("data-score", "data-block"))
    assert abs(bar["x"] + bar["width"] / 2 - under["x"] - under["width"] / 2) < 0.1
    assert abs(bar["width"] - under["width"]) < 1.2, "a removed block has a line around it"
    chip(page, "block-influence").click()
    wait_for_criterion(page, "block influence")
    assert page.locator(BARS).count() == 30 and page.locator(f"{BARS}.gl-won").count() == 5
    assert "per block; lower is better" in page.text_content("#gl-map .gl-map-scores")
    number(page, "How many").fill("3")
    page.wait_for_function("document.querySelectorAll('#gl-map .gl-map-scores .gl-won').length === 3")
    page.wait_for_selector("#gl-map svg[aria-label*='(3 of 30)']")
    assert page.locator(".gl-busy").count() == 0 and sent


def test_a_criterion_that_asks_the_model_is_only_set(page):
    write_range(page, "3-4")
    page.click("#gl-map summary")
    chip(page, "taylor").click()
    wait_for_criterion(page, "Taylor (gradients)")
    assert not chip(page, "taylor").is_visible(), "the list closes"
    assert "with the model: Taylor (gradients)" in page.inner_text("#gl-map summary")
    assert says(page) == "Layer map: removes blocks 3–4 (2 of 30)"
    assert "asks the model: press Run" in page.text_content("#gl-map .gl-map-scores")
    page.wait_for_timeout(300)
    assert page.locator(".gl-busy").count() == 0
    choose_criterion(page, "best (ours)")
    press_run(page, new_tokens="1")
    wait_for_text(page, "10,14-16,22")
    assert "best (ours), its candidates, best first; lower is better" in page.text_content("#gl-map .gl-map-scores")
    assert page.locator(f"{BARS}.gl-won").count() == 3


def test_the_form_of_the_criterion_and_the_buttons_agree(run):
    choose_criterion(run, "angle at the last token")
    wait_for_text(run, "14-18")
    assert chip(run, "angular").get_attribute("aria-pressed") == "true"
    drag(run, 2, 4)
    wait_for_criterion(run, "chosen by hand")
    assert chip(run, "angular").get_attribute("aria-pressed") == "false"


def test_what_was_picked_during_a_run_stands(browser):
    with served(make_run(pace=0.05, steps=100)) as address, opened(browser, address) as page:
        page.click("#gl-run")
        page.wait_for_selector(".gl-busy")
        drag(page, 2, 4)
        wait_for_text(page, "2-4")
        assert page.locator("#gl-map image").count() == 0, "the criterion has not chosen yet"
        page.wait_for_selector("#gl-map image", timeout=60_000)
        page.wait_for_timeout(1000)
        wait_for_text(page, "2-4")
        assert says(page) == "Layer map: removes blocks 2–4 (3 of 30)"
        wait_for_criterion(page, "chosen by hand")
        assert page.faults == []


def test_the_map_switches_to_what_a_repair_leaves(run):
    page = run
    before = page.get_attribute("#gl-map image", "href")
    page.focus("#gl-map [data-view='similarity']")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.view") == "before"
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#gl-map [data-view='left']", "aria-checked") == "true"
    assert page.get_attribute("#gl-map image", "href") != before
    assert page.locator("#gl-map [role=radio][tabindex='0']").count() == 1
    page.click("#gl-map [data-view='after']")
    assert "repaired" in page.inner_text("#gl-map .gl-map-legend")
    page.click("#gl-map [data-view='similarity']")
    assert page.get_attribute("#gl-map image", "href") == before


def test_hovering_tells_the_pair_and_asks_nobody(run):
    page = run
    sent = requests_of(page)
    for _ in range(40):  # what the run still sends
        before = len(sent)
        page.wait_for_timeout(1500)
        if len(sent) == before:
            break
    sent.clear()
    said = hover_pair(page, 12, 17)
    assert said.startswith("States 12 and 17, blocks 12–16: cosine 0.75")
    assert "angle 4" in said and "before repair" in said and "% left)" in said
    assert said.endswith("Choice of cosine similarity")
    assert "State 3: cosine 1.00, angle 0°" in hover_pair(page, 3, 3)
    assert "nothing" not in hover_pair(page, 0, 1) and "% left" not in hover_pair(page, 0, 1)
    page.mouse.move(*block(page, 10))
    assert "Block 10, removed" in page.inner_text("#gl-map .gl-map-hover")
    page.mouse.move(0, 0)
    assert not sent


def test_before_a_run_the_errors_cannot_be_shown_and_the_map_says_why(page):
    page.click("#gl-map [data-view='left']", force=True)
    assert "press Run" in page.inner_text("#gl-map .gl-map-hover")
    assert page.get_attribute("#gl-map [data-view='similarity']", "aria-checked") == "true"
    chip(page, "cosine").click()
    wait_for_criterion(page, "cosine similarity")
    assert "needs the similarities: press Run" in page.text_content("#gl-map .gl-map-scores")


def test_nothing_moves_when_a_run_fills_the_map(page):
    def heights():
        return [page.locator(each).bounding_box()["height"] for each in ("#gl-map", "#gl-map .gl-map-svg")]

    before = heights()
    press_run(page, new_tokens="1")
    page.wait_for_selector("#gl-map [data-view='left'][aria-disabled='false']")
    hover_pair(page, 12, 17)
    assert heights()[1] == before[1] and abs(heights()[0] - before[0]) < 24, "at most one more line of its sentence"


@pytest.mark.parametrize("blocks", [4, pytest.param(80, marks=pytest.mark.soak)])
def test_small_and_large_models(browser, blocks):
    with served(make_run(pace=0.004, steps=2, blocks=blocks)) as address, opened(browser, address, width=390) as page:
        write_range(page, "1")
        press_run(page, new_tokens="1")
        page.wait_for_selector(f"#gl-map svg[aria-label*='(1 of {blocks})']")
        number(page, "How many")
        chip(page, "cosine").click()
        page.wait_for_timeout(200)
        if blocks == 4:
            assert "How many? From 1 to 3 of 4" in page.inner_text("#gl-map .gl-map-hover")
            number(page, "How many").fill("2")
        expected = {4: "(2 of 4)", 80: "(5 of 80)"}[blocks]
        page.wait_for_selector(f"#gl-map svg[aria-label*='{expected}']")
        assert page.locator(BARS).count() == blocks - (2 if blocks == 4 else 5) + 1
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.faults == []


def test_a_finger_scrolls_over_the_picture_and_taps_a_pair(browser, url):
    page = browser.new_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    try:
        goto(page, url)
        box = page.locator("#gl-map .gl-map-ground").bounding_box()
        size = box["width"] / 31
        page.locator("#gl-map").scroll_into_view_if_needed()
        box = page.locator("#gl-map .gl-map-ground").bounding_box()
        page.touchscreen.tap(box["x"] + 17.5 * size, box["y"] + 12.5 * size)
        wait_for_text(page, "12-16")
        page.click("#gl-map .gl-map-add")
        wait_for_text(page, "0,12-16")
        page.click("#gl-map .gl-map-drop")
        wait_for_text(page, "12-16")
        touch = "s => getComputedStyle(document.querySelector(s)).touchAction"
        assert page.evaluate(touch, "#gl-map .gl-map-svg") == "pan-y"
        assert page.evaluate(touch, "#gl-map .gl-map-block") == "none"
    finally:
        page.close()
