"""Lessons: data in two languages, live numbers, answers that react, and a class whose guesses are counted."""

import json
import re
from types import SimpleNamespace

import gradio as gr
import pytest
from fake_run import facts as model_facts
from fake_run import make_run
from test_page import request, values

from analysis.glossary import explained, sheet, terms
from analysis.lessons import LANGUAGES, RUNS, Check, Option, Question, experiments, lesson_of, lessons
from analysis.lessons import facts as live_facts
from analysis.lessons.answers import check, number_of
from analysis.lessons.guesses import BINS, MOST_ANSWERS, Guesses, bars
from analysis.lessons.kept import kept
from analysis.numbers import MISSING
from analysis.page import build_page
from analysis.panels import PANELS
from analysis.panels.controls import BELONGS
from analysis.teaching import Teaching, asked, run_of
from analysis.words import catalogue, language_of, said

ALL = [(lesson, index) for lesson in lessons().values() for index in range(len(lesson.steps))]
NAMES = [f"{lesson.name}.{index + 1}" for lesson, index in ALL]


def right_answer(question, record):
    """What a learner who knows answers, and what one does who does not."""
    want = question.check
    fact = live_facts.evaluate(want.fact, record) if want.fact else want.equals
    if question.kind == "number":
        return f"{fact:.6g}", f"{10 * fact + 1:.3g}"
    expected = want.equals if want.equals is not None else str(fact)
    return expected, next(option.value for option in question.options if option.value != expected)


@pytest.fixture(scope="module")
def page():
    return build_page(make_run(pace=0, steps=1), model_facts)


def teaching(page) -> Teaching:
    return next(fn.fn for fn in page.fns.values() if fn.name == "act" and isinstance(fn.fn.__self__, Teaching)).__self__


def do(page, visitor, deed, value="", browser=""):
    event = SimpleNamespace(asked=json.dumps([deed, value, browser]))
    return teaching(page).act(event, request(visitor))


def opened(page, visitor, query, header="", answers=""):
    asks = SimpleNamespace(session_hash=visitor, query_params=query, headers={"accept-language": header})
    return teaching(page).open(answers, asks)


def test_five_lessons_stand_in_order_and_say_how_long_they_take():
    assert list(lessons()) == ["layer", "cut", "bridge", "few", "where"]
    assert sum(lesson.minutes for lesson in lessons().values()) <= 35
    assert lessons()["bridge"].steps[-1].question.ask["en"].startswith("What is A")


@pytest.mark.parametrize(("lesson", "index"), ALL, ids=NAMES)
def test_every_step_has_its_run_its_panel_and_all_its_numbers(lesson, index):
    step = lesson.steps[index]
    assert step.panel is None or step.panel in PANELS
    assert step.run is None or step.run in experiments()
    record = run_of(step.run) if step.run else None
    texts = [step.title, step.text]
    if step.question:
        texts += [step.question.ask, step.question.explain, *(option.text for option in step.question.options)]
    for text in texts:
        assert set(text) == set(LANGUAGES)
        assert text["en"] and text["de"]
        assert live_facts.names(text["en"]) == live_facts.names(text["de"]), "the same numbers in both languages"
        for language in LANGUAGES:
            if record is not None:
                filled = live_facts.filled(text[language], record)
                assert "{{" not in filled
                assert not (live_facts.names(text[language]) and MISSING in filled.replace("–", MISSING)
                            and any(live_facts.evaluate(name, record) is None
                                    for name in live_facts.names(text[language])))
            written = re.sub(r"\{\{[^}]*\}\}|\$[^$]*\$", "", text[language])
            assert not re.search(r"\d\.\d", written), "no measured number is written down"


@pytest.mark.parametrize("name", sorted(experiments()))
def test_the_runs_are_those_that_the_command_makes(name):
    record, asked_for = run_of(name), experiments()[name]
    assert record is not None and record.source == "precomputed"
    assert record.run.experiment == asked_for
    assert record.run.self_check is True
    assert {found.method for found in record.run.methods} == set(asked_for.methods)
    assert (RUNS / f"{name}.json").stat().st_size < 1_000_000


@pytest.mark.parametrize(("lesson", "index"), [(lesson, index) for lesson, index in ALL if lesson.steps[index].question
                                               and lesson.steps[index].question.kind != "act"])
def test_right_and_wrong_answers_are_told_apart_by_the_run(lesson, index):
    step = lesson.steps[index]
    record = run_of(step.run)
    right, wrong = right_answer(step.question, record)
    assert check(step.question, right, record).verdict == "right"
    assert check(step.question, wrong, record).verdict == "wrong"
    if step.question.check.fact:
        assert check(step.question, right, None).verdict == "unknown"


def test_what_the_lessons_claim_is_what_their_runs_measured():
    five, few, ridge, sink, nine = (run_of(name) for name in ("five", "few", "ridge", "sink", "nine"))
    see = live_facts.evaluate
    assert see("share(linearpatch)", five) < 0.01 < 10 < see("share(ghosted)", five), "a symmetric W cannot turn"
    assert see("median(linearpatch)", five) > see("median(symmetric)", five) > see("median(ghosted)", five)
    assert see("perplexity(none)", five) > see("perplexity(ghosted)", five) > see("perplexity(original)", five)
    assert see("spike(14)", five) > 10 * see("spike(11)", five), "block 11 writes the sink"
    assert see("calibration(ghosted)", few) < 0.1 and see("median(ghosted)", few) > 1
    assert see("perplexity(ghosted)", few) > see("perplexity(none)", few)
    assert see("calibration(ghosted)", ridge) > see("calibration(ghosted)", few)
    assert see("median(ghosted)", ridge) < 1
    assert see("perplexity(ghosted)", ridge) < see("perplexity(ghosted)", few)
    assert see("cosine_choice(9)", sink) == "10-18"
    assert see("held_out(ghosted)", sink) < see("held_out(ghosted-weighted)", sink)
    assert see("perplexity(ghosted)", sink) > see("perplexity(ghosted-weighted)", sink)
    assert see("perplexity(ghosted)", nine) < see("perplexity(ghosted)", sink)
    assert see("cosine(12,21)", nine) < see("cosine(10,19)", nine)


def test_facts_are_none_where_a_run_lacks_them_and_unknown_ones_are_refused():
    assert live_facts.evaluate("perplexity(low-rank)", run_of("five")) is None
    assert live_facts.evaluate("least(median,ghosted,low-rank)", run_of("five")) is None
    assert live_facts.filled("It is {{perplexity(low-rank)}}.", run_of("five")) == f"It is {MISSING}."
    for wrong in ("__import__(os)", "perplexity", "", "nonsense(1)"):
        with pytest.raises((ValueError, TypeError)):
            live_facts.evaluate(wrong, run_of("five"))


@pytest.mark.parametrize(("typed", "number"), [
    ("0.5", 0.5), ("0,5", 0.5), (" 35 % ", 35.0), ("30×", 30.0), ("1e3", 1000.0), ("", None), ("many", None),
    ("nan", None), ("1e99", None), ("<b>1</b>", None),
])
def test_numbers_are_read_as_people_type_them(typed, number):
    assert number_of(typed) == number


def test_a_file_that_makes_no_sense_is_refused():
    text = {"en": "a", "de": "b"}
    step = {"title": text, "text": text}
    base = {"name": "x", "title": text, "minutes": 1}
    assert lesson_of(base | {"steps": [step]}).steps[0].question is None
    asks = {"ask": text, "explain": text, "check": {"fact": "removed"}}
    for bad in ({"kind": "essay"}, {"kind": "choice"}, {"kind": "number"},
                {"kind": "number", "options": [{"value": "1", "text": text}]}):
        with pytest.raises(ValueError):
            lesson_of(base | {"steps": [step | {"question": asks | bad}]})
    with pytest.raises(ValueError, match="empty in one language"):
        lesson_of(base | {"steps": [step | {"text": {"en": "a", "de": ""}}]})


def test_guesses_count_once_per_visitor_and_stay_bounded():
    guesses = Guesses()
    for visitor in range(MOST_ANSWERS + 10):
        guesses.add("cut.1", f"v{visitor}", "30")
        guesses.add("cut.1", f"v{visitor}", "50")
    assert guesses.of("cut.1") == ["30"] * MOST_ANSWERS
    assert guesses.of("cut.2") == []


def test_the_class_is_shown_as_a_histogram():
    text = {"en": "one", "de": "eins"}
    choice = Question("choice", text, text, Check(""), (Option("a", text), Option("b", {"en": "two", "de": "zwei"})))
    assert bars(choice, ["a", "b", "b"], "de") == [("eins", 1), ("zwei", 2)]
    number = Question("number", text, text, Check("removed"))
    counted = bars(number, ["0", "8", "4,0", "4.1", "x"], "en")
    assert len(counted) == BINS and sum(count for _, count in counted) == 4
    assert counted[0] == ("0 – 1", 1) and counted[-1] == ("7 – 8", 1)
    assert bars(number, ["2", "2"], "en") == [("2", 2)]
    assert bars(number, [], "en") == []


def test_all_lessons_are_walked_in_both_languages_and_every_check_reacts(page):
    panel, opening, seen = teaching(page).panel, teaching(page).opening, 0
    for lesson in lessons().values():
        do(page, "walk", "open", lesson.name)
        for index, step in enumerate(lesson.steps):
            shown = do(page, "walk", "go", str(index))
            for language in LANGUAGES:
                shown = do(page, "walk", "lang", language)
                assert step.title[language] in shown[panel.text]
                assert "{{" not in shown[panel.text] and "[[" not in shown[panel.text]
                assert f"data-step='{index + 1}'" in shown[panel.bar]
                if step.question is None:
                    assert shown[panel.question] == "" and shown[panel.verdict] == ""
                    continue
                assert (shown[panel.verdict] == "") == (language == "en"), "nothing is revealed before an answer"
                if step.question.kind == "act":
                    opening.changed(request("walk"), *values(criterion="manual", remove="3"))
                    wrong = do(page, "walk", "answer")[panel.verdict]
                    opening.changed(request("walk"), *values(criterion="manual", remove="12-16"))
                    right = do(page, "walk", "answer")[panel.verdict]
                    assert wrong == said("wrong_act", language, fact="3")
                else:
                    knows, does_not = right_answer(step.question, opening.live.record(request("walk")))
                    assert do(page, "walk", "answer", "")[panel.verdict] == said("unread", language)
                    wrong = do(page, "walk", "answer", does_not)[panel.verdict]
                    right = do(page, "walk", "answer", knows)[panel.verdict]
                    assert said("wrong", language) in wrong
                    assert not re.search(r"(\d+\.\d+)\W+\1\b", right.partition("|")[0]), "a number is said once"
                    assert said("class", language, count=1) in right, "the first guess counts, and only that"
                assert said("right", language) in right
                seen += 1
    assert seen >= 32


def test_a_step_shows_its_run_badged_and_sets_the_controls(page):
    shown = do(page, "badge", "open", "few")
    live = teaching(page).live
    assert live.record(request("badge")) is run_of("few")
    assert json.loads(shown[live.layout.bus])["source"] == "precomputed"
    assert shown[next(c for c, name in zip(live.layout.inputs(), values.__globals__["FIELDS"], strict=True)
                      if name == "tokens")] == 576
    assert live.layout.bus not in do(page, "badge", "go", "1"), "the same run is not shown twice"
    assert not live.runner.running("badge"), "nothing was started"


def test_a_link_opens_a_step_in_its_language_and_a_broken_one_opens_none(page):
    panel = teaching(page).panel
    shown = opened(page, "link", {"lesson": "bridge.3", "lang": "de"})
    assert "Strecken und drehen" in shown[panel.text] and "data-step='3'" in shown[panel.bar]
    assert "Das Senken-Token" in opened(page, "header", {"lesson": "layer.3"}, "de-AT,de;q=0.9,en;q=0.5")[panel.text]
    assert "What is A?" in opened(page, "far", {"lesson": "bridge.999"})[panel.text], "the last step there is"
    assert opened(page, "none", {"lesson": "<img>.1"}) == gr.skip()
    assert "Lektionen" in opened(page, "closed", {"lang": "de"})[panel.menu]
    shown = do(page, "link", "close")
    assert shown[panel.text] == "" and "data-closed" in shown[panel.bar]


def test_a_teacher_sees_answers_without_giving_any(page):
    panel = teaching(page).panel
    do(page, "teacher", "open", "cut")
    do(page, "teacher", "go", "1")
    shown = do(page, "teacher", "teacher")
    explain = lessons()["cut"].steps[1].question.explain["en"]
    assert explained(live_facts.filled(explain, run_of("five")), "en") == shown[panel.verdict]
    assert do(page, "teacher", "teacher")[panel.verdict] == ""


def test_what_buttons_ask_is_read_without_trust(page):
    panel = teaching(page).panel
    for text in ("", "no json", "[1]", "{}", json.dumps(["open", {"a": 1}]), json.dumps(["go", "-5"])):
        shown = teaching(page).act(SimpleNamespace(asked=text), request("hostile"))
        assert "gl-lessons" in shown[panel.bar]
    assert asked(json.dumps(["answer", "x" * 500])) == ("answer", "x" * 100, "")
    do(page, "hostile", "open", "cut")
    do(page, "hostile", "go", "1")
    shown = do(page, "hostile", "answer", "<img src=x onerror=alert(1)>")
    assert "<img" not in shown[panel.question] + shown[panel.verdict]


def test_the_catalogue_has_every_text_in_both_languages():
    for key, texts in catalogue().items():
        assert set(texts) == set(LANGUAGES) and all(texts.values()), key
    assert language_of("", "fr-FR, de;q=0.8") == "de"
    assert language_of("xx", "fr") == "en"
    assert said("back", "fr") == "Back"


def test_the_glossary_has_the_words_of_the_field_and_prints_on_one_sheet():
    wanted = {"block", "state", "removed blocks", "gap", "X_pre", "X_post", "operator", "boundary error", "held-out",
              "damage", "downstream error", "method", "criterion"}
    assert wanted <= set(terms())
    for language in LANGUAGES:
        page = sheet(language)
        assert page.count("<dt>") == len(terms())
        assert "http" not in page and "<script" not in page, "it needs no network"
        assert len(re.sub(r"<style>.*?</style>|<[^>]*>", "", page)) < 5_000, "one sheet of paper"
    assert explained("a [[gap|gaping]] [[S]]", "de").count("class='gl-term' tabindex='0'") == 2
    with pytest.raises(KeyError):
        explained("[[nonsense]]", "en")


def test_numbers_are_read_as_the_page_writes_them_and_as_germans_do():
    for text, number in (("1,070", 1070), ("16,384.5", 16384.5), ("0,535", 0.535), ("1,5", 1.5), ("1 070", 1070),
                         ("38 %", 38)):  # fmt: skip
        assert number_of(text) == number, text
    assert number_of("abc") is None


def covered(shown, panel):
    found = re.search(r"data-covers='([^']*)'", shown[panel.bar])
    return set(found[1].split()) if found else set()


def test_what_shows_the_answer_is_covered_until_a_guess_or_a_wish_to_see(page):
    panel = teaching(page).panel
    do(page, "blind", "open", "cut")
    shown = do(page, "blind", "go", "1")
    assert covered(shown, panel) == {"scores", "downstream"} and said("covered", "en") in shown[panel.bar]
    assert covered(do(page, "blind", "answer", "many"), panel), "no number, no guess"
    assert not covered(do(page, "blind", "teacher"), panel)
    assert covered(do(page, "blind", "teacher"), panel)
    assert said("uncover", "de") in do(page, "blind", "lang", "de")[panel.bar]
    assert not covered(do(page, "blind", "answer", "30"), panel)
    assert covered(do(page, "blind", "go", "2"), panel) == {"boundary", "scores", "tokens", "downstream"}
    before = teaching(page).guesses.of("cut.2")
    shown = do(page, "blind", "uncover")
    assert not covered(shown, panel) and shown[panel.verdict] == ""
    assert said("right", "de") in do(page, "blind", "answer", "1")[panel.verdict]
    assert teaching(page).guesses.of("cut.2") == before, "who has looked does not guess"


@pytest.mark.parametrize(("lesson", "index"), ALL, ids=NAMES)
def test_a_question_covers_the_panels_that_its_answer_stands_in(lesson, index):
    question = lesson.steps[index].question
    names = set(live_facts.seen(question.check.fact)) if question else set()
    assert names <= set(PANELS)
    measured = question is not None and question.kind != "act" and question.check.fact
    assert bool(names) == bool(measured), "every fact of a run is seen somewhere"
    assert question is None or not question.reads or lesson.steps[index].panel in names


def test_answers_outlive_a_reload_and_count_once_per_browser(page):
    panel, count = teaching(page).panel, lambda: len(teaching(page).guesses.of("cut.3"))
    query, mine, before = {"lesson": "cut.4"}, "a" * 32, count()
    opened(page, "first", query)
    given = do(page, "first", "answer", "none", mine)
    assert "data-answer='&quot;none&quot;'" in given[panel.bar] and count() == before + 1
    again = opened(page, "reloaded", query, answers=json.dumps({"cut.4": "none", "cut.3": None, "bridge.1": "x"}))
    assert again[panel.verdict] == given[panel.verdict] and "value='none' checked" in again[panel.question]
    assert not covered(again, panel)
    skipped = do(page, "reloaded", "go", "2")
    assert not covered(skipped, panel) and "data-answer='null'" in skipped[panel.bar]
    opened(page, "reloaded", query)
    do(page, "reloaded", "answer", "ghosted", mine)
    assert count() == before + 1, "the same browser votes once"
    do(page, "reloaded", "answer", "ghosted", "b" * 32)
    assert count() == before + 2
    shown = do(page, "reloaded", "forget")
    assert covered(shown, panel) and shown[panel.verdict] == ""


@pytest.mark.parametrize("text", ["", "no json", "[]", "7", "[" * 9000, '{"cut": "1", "cut.0": "1", "cut.99": "1", '
                                  '"x.1": "1", "few.4": "1", "cut.2": 5, "cut.²": "1"}', "x" * 30_000])
def test_what_a_browser_kept_is_read_without_trust(text):
    assert kept(text) == {}


def test_kept_answers_are_bounded():
    assert kept('{"cut.2": "' + "3" * 99 + '", "cut.3": null}') == {("cut", 1): "3" * 40, ("cut", 2): None}


def test_what_a_teachers_link_hides_with_a_control_is_there(page):
    placed = {getattr(each, "elem_id", None) for each in page.blocks.values()}
    for control, belongings in BELONGS.items():
        assert {f"gl-{name}" for name in (control, *belongings)} <= placed, control
