"""Lessons in Chromium: the menu, a walk through all five in both languages, the address, keys, and the cheat sheet."""

import pytest
from browser import chromium, opened
from fake_run import make_run
from pages import served, write_range
from test_lessons import right_answer

from analysis.lessons import LANGUAGES, lessons
from analysis.teaching import run_of
from analysis.words import said

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def url():
    with served(make_run(pace=0.001, steps=1)) as address:
        yield address


def press(page, deed):
    page.locator(f"#gl-lesson button[data-deed='{deed}']").last.click()


def onward(page):
    page.locator("#gl-lesson-bar button[data-deed='go']").nth(1).click()


def told(page, text):
    page.wait_for_function("text => document.querySelector('#gl-lesson-verdict')?.innerText.includes(text)", arg=text)


def titled(page, step, language):
    page.wait_for_function("t => document.querySelector('#gl-lesson-text h3')?.innerText === t",
                           arg=step.title[language])


def answer(page, question, given):
    if question.kind == "choice":
        page.check(f"#gl-lesson-question input[value='{given}']")
    elif question.kind == "number":
        page.fill("#gl-lesson-question input", given)
    press(page, "answer")


def walk(page, lesson, language, right):
    """Open a lesson and answer each of its steps, all rightly or all wrongly."""
    page.click("#gl-lesson-menu summary")
    page.click(f"#gl-lesson-menu button[data-value='{lesson.name}']")
    for index, step in enumerate(lesson.steps):
        titled(page, step, language)
        record, question = run_of(step.run) if step.run else None, step.question
        if question is not None and question.kind == "act":
            if right:
                write_range(page, question.check.equals)
                page.wait_for_function("() => location.search.includes('remove=12-16')")
            answer(page, question, "")
            told(page, said("right", language) if right else "Noch nicht")
        elif question is not None:
            answer(page, question, right_answer(question, record)[0 if right else 1])
            told(page, said("right" if right else "wrong", language))
            told(page, said("class", language, count=1))
        if index + 1 < len(lesson.steps):
            onward(page)


def walked(browser, url, names):
    """Walk lessons in German, all answers wrong, then in English, all right; return the page's faults."""
    some = [lessons()[name] for name in names]
    with opened(browser, f"{url}?lang=de") as page:
        page.wait_for_selector(f"#gl-lesson-menu summary:has-text('{said('lessons', 'de')}')")
        for lesson in some:
            walk(page, lesson, "de", right=False)
        page.locator("#gl-lesson-bar button[data-deed='lang']").click()
        titled(page, some[-1].steps[-1], "en")
        for lesson in some:
            walk(page, lesson, "en", right=True)
        return page.faults


@pytest.mark.soak
def test_all_five_lessons_are_walked_in_both_languages(browser, url):
    assert walked(browser, url, lessons()) == []


def test_a_lesson_is_walked_in_both_languages(browser, url):
    assert walked(browser, url, ["bridge"]) == []


def test_the_address_holds_the_step_and_leaving_clears_it(browser, url):
    with opened(browser, url) as page:
        page.evaluate("localStorage.clear()")
        page.reload()
        page.wait_for_selector("#gl-side[inert]", state="detached")
        assert not page.is_visible("#gl-lesson")
        page.click("#gl-lesson-menu summary")
        page.click("#gl-lesson-menu button[data-value='bridge']")
        page.wait_for_function("() => location.search.includes('lesson=bridge.1')")
        assert page.locator("#gl-lesson-text .katex").count() >= 3
        page.focus("#gl-lesson-bar button[data-deed='point']")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("() => location.search.includes('lesson=bridge.2')")
        page.wait_for_selector("#gl-panel-boundary[data-covered] > .gl-plot[inert]", state="attached")
        answer(page, lessons()["bridge"].steps[1].question, "ghosted")
        told(page, said("right", "en"))
        page.wait_for_selector("#gl-panel-boundary:not([data-covered])")
        page.reload()
        page.wait_for_function("t => document.querySelector('#gl-lesson-text h3')?.innerText === t",
                               arg=lessons()["bridge"].steps[1].title["en"])
        told(page, said("right", "en"))
        assert page.is_checked("#gl-lesson-question input[value='ghosted']")
        page.wait_for_function("() => document.querySelector('#gl-main').dataset.source === 'precomputed'")
        onward(page)
        page.locator("#gl-panel-decomposition .gl-cover button").click()
        page.wait_for_selector("#gl-panel-decomposition:not([data-covered])")
        for step in (4, 5):
            onward(page)
            page.wait_for_function(f"() => location.search.includes('lesson=bridge.{step}')")
        press(page, "finish")
        page.wait_for_function("() => !location.search.includes('lesson=')")
        page.wait_for_selector("#gl-lesson", state="hidden")
        page.click("#gl-lesson-menu summary")
        page.wait_for_selector("#gl-lesson-menu button[data-value='bridge'][data-done]")
        page.keyboard.press("Escape")
        assert not page.is_visible("#gl-lesson-menu button[data-value='bridge']")


def test_the_panel_stays_in_sight_points_and_explains_words(browser, url):
    with opened(browser, f"{url}?lesson=cut.3") as page:
        term = page.locator("#gl-lesson-text .gl-term").first
        for show in (term.hover, term.focus, term.click):
            show()
            page.wait_for_selector("#gl-means:has-text('Plain pruning is exactly 1')")
            assert term.get_attribute("aria-describedby") == "gl-means"
            page.keyboard.press("Escape")
            page.wait_for_selector("#gl-means", state="hidden")
            page.evaluate("document.activeElement.blur()")
            page.mouse.move(1, 1)
        onward(page)
        page.wait_for_function("() => location.search.includes('lesson=cut.4')")
        page.evaluate("""() => new MutationObserver(([change]) => { window.pointed = change.target.className; })
            .observe(document.querySelector("#gl-panel-generations"), { attributeFilter: ["class"] })""")
        page.click("#gl-lesson-bar button[data-deed='point']")
        page.wait_for_function("() => window.pointed !== undefined")  # the mark itself is there for seconds only
        page.wait_for_function("() => scrollY > 200")
        page.wait_for_timeout(900)
        assert page.locator(".gl-ways").bounding_box()["height"] < 30, "the buttons stand in one line"
        box = page.locator("#gl-lesson").bounding_box()
        assert 0 <= box["y"] < 40 and box["height"] <= 0.47 * 900, "it stays at the top, and leaves room"
        panel = page.locator("#gl-panel-generations").bounding_box()
        assert box["y"] + box["height"] - 5 <= panel["y"] < 900


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_cheat_sheet_opens_as_a_page_of_its_own(browser, url, language):
    with opened(browser, f"{url}?lang={language}") as page:
        page.wait_for_selector(f"#gl-lesson-menu details[lang='{language}']")
        page.click("#gl-lesson-menu summary")
        with page.context.expect_page() as opening:
            page.click("#gl-lesson-menu button[data-deed='sheet']")
        sheet = opening.value
        sheet.wait_for_selector("dl dd")
        assert sheet.title() == said("sheet", language)
        sheet.close()


@pytest.mark.parametrize("width", [390, *(pytest.param(w, marks=pytest.mark.soak) for w in (1280, 1920))])
def test_a_lesson_fits_every_width(browser, url, width):
    with opened(browser, f"{url}?lesson=few.3&lang=de", width=width) as page:
        page.wait_for_selector("#gl-lesson-text .katex")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("#gl-lesson").bounding_box()["width"] > 0.5 * min(width, 700)
        page.locator("#gl-lesson-text .gl-term").last.focus()
        means = page.wait_for_selector("#gl-means:has-text('Text nach dem')").bounding_box()
        assert means["x"] >= 0 and means["x"] + means["width"] <= width
