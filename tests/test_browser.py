"""The page in a real browser, on the fake run: every control, every picture, every width, both themes."""

import re

import pytest
from browser import opened
from fake_run import make_run
from pages import choose_criterion, drag, number, press_run, says, see, served, wait_for_text, write_range
from test_figures import contrast

pytestmark = pytest.mark.browser

PLOTS = (
    "boundary", "operator-W", "operator-M", "operator-S", "operator-A", "spectrum-plane", "spectrum-line",
    "spectrum-rotations", "spectrum-singular", "similarity", "influence", "norms", "cosines", "profile-positions",
    "profile-channels", "profile-sizes", "downstream-error", "downstream-cosine",
)


@pytest.fixture(scope="module")
def slow_url(browser):
    with served(make_run(pace=0.05, steps=100)) as address:
        yield address


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
        drawn = see(page, name)
        assert drawn.bounding_box()["height"] > 200, name
    assert page.locator(".gl-column").count() == 6
    assert page.locator(".gl-panel:not(#gl-panel-evidence) .gl-empty:visible").count() == 0
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
    see(page, "operator-W")
    for name in ("none", "linearpatch", "replaceme", "ghosted"):
        page.uncheck(f"#gl-methods input[name='{name}']")
    press_run(page)
    page.wait_for_function("() => document.body.innerText.includes('not linear in')")
    page.evaluate("document.querySelector('#gl-panel-decomposition').scrollIntoView()")
    page.wait_for_selector("#gl-plot-operator-W .main-svg", state="detached")
    empty = page.locator("#gl-panel-decomposition .gl-empty:visible")
    assert empty.count() == 8, "four maps and four spectra"
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
    see(page, "operator-W")  # what draws the pictures sets the picker, too
    weighted = page.locator("#gl-operator").get_by_label("ghosted, weighted")
    weighted.click()
    page.wait_for_function("document.body.innerText.includes('For ghosted, weighted, blocks 14-18')")
    assert weighted.is_checked()


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
    assert "12 blocks of width 64" in page.inner_text("#gl-facts")


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


@pytest.mark.parametrize("width", [390, *(pytest.param(w, marks=pytest.mark.soak) for w in (1280, 1920))])
def test_no_sideways_scroll_and_plots_as_wide_as_their_place(browser, url, width):
    with opened(browser, url, width=width) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        press_run(page)
        for name in PLOTS:
            see(page, name)
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
        see(page, "similarity")
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
