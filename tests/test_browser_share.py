"""Sharing in a real browser: the address follows, a link opens elsewhere, files are downloaded and read back."""

import csv
import io
import json
import zipfile

import pytest
from browser import goto, opened
from fake_run import NASTY, make_run
from pages import see, served

from analysis.limits import SHARED

pytestmark = pytest.mark.browser

PROMPT = "".join(NASTY)


@pytest.fixture(scope="module")
def url(browser):
    with served(make_run(pace=0.002, steps=2, pieces=NASTY)) as address:
        yield address.rstrip("/")


@pytest.fixture
def page(browser, url):
    with opened(browser, f"{url}/?remove=12-16&max-new-tokens=3", ready="#gl-link .gl-copy") as shown:
        filled(shown, "#gl-max-new-tokens input", "3")
        yield shown
        assert shown.faults == []


def filled(page, selector, value):
    """Wait until the page has set a control from its link."""
    page.wait_for_function("([selector, value]) => document.querySelector(selector)?.value === value",
                           arg=[selector, value])


def wait_for_query(page, *parts):
    page.wait_for_function("parts => parts.every(part => location.search.includes(part))", arg=list(parts))


def write(page, selector, text):
    page.locator(selector).click()
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


def run(page):
    page.click("#gl-run")
    page.wait_for_selector(".gl-done", timeout=60_000)
    page.wait_for_selector("#gl-shown [data-blocks='12-16']")


def download(page, name):
    page.wait_for_selector(f"#gl-export-{name}:not([disabled])")
    with page.expect_download() as waiting:
        page.click(f"#gl-export-{name}")
    with open(waiting.value.path(), "rb") as file:
        return waiting.value.suggested_filename, file.read()


def test_the_address_follows_the_settings_and_a_reload_restores_them(page, browser, url):
    write(page, "#gl-tokens input", "4096")
    write(page, "#gl-prompt textarea", PROMPT)
    wait_for_query(page, "remove=12-16", "tokens=4096", "max-new-tokens=3", "prompt=%3Cimg", "x%5E2%24")
    address = page.evaluate("location.href")
    page.reload()
    filled(page, "#gl-tokens input", "4096")
    assert page.input_value("#gl-prompt textarea") == PROMPT
    assert page.evaluate("location.href") == address
    stranger = browser.new_context()
    other = stranger.new_page()
    goto(other, address)
    filled(other, "#gl-tokens input", "4096")
    assert other.input_value("#gl-prompt textarea") == PROMPT
    assert other.get_attribute("#gl-map svg", "aria-label") == "Layer map: removes blocks 12–16 (5 of 30)"
    stranger.close()


def test_a_broken_link_opens_with_a_notice_and_defaults(browser, url):
    with opened(browser, f"{url}/?tokens=%3Cimg%20src=x%20onerror=alert(1)%3E&methods=ghosted,magic",
                ready="#gl-link .gl-copy") as page:
        page.wait_for_selector("#gl-status :text('tokens cannot be used')")
        assert "<img src=x" in page.inner_text("#gl-status") and "magic" in page.inner_text("#gl-status")
        assert page.input_value("#gl-tokens input") == "16384"
        wait_for_query(page, "methods=ghosted")
        assert "tokens" not in page.evaluate("location.search")
        assert page.faults == []


def test_the_link_is_copied_and_says_so(browser, url):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    goto(page, f"{url}/?remove=3,12-16&__theme=dark&lesson=one")
    page.wait_for_selector("#gl-link .gl-copy")
    page.focus("#gl-link .gl-copy")
    page.keyboard.press("Enter")
    page.wait_for_selector("#gl-link .gl-copied:text('Copied.')")
    assert page.evaluate("navigator.clipboard.readText()") == f"{url}/?remove=3,12-16&lesson=one"
    page.click("#gl-code button")
    page.click(".gl-copy-code[aria-label='Copy Command line']")
    page.wait_for_selector(".gl-code .gl-copied:text('Copied.')")
    assert page.evaluate("navigator.clipboard.readText()").startswith("python -m ghosted compare")
    context.close()


@pytest.mark.parametrize("works", [True, False])
def test_without_a_clipboard_the_old_way_copies_or_the_link_is_there_to_copy(browser, url, works):
    with opened(browser, f"{url}/?remove=7", ready="#gl-link .gl-copy") as page:
        page.evaluate("""works => {
            Object.defineProperty(navigator, 'clipboard', {value: undefined});
            const old = document.execCommand.bind(document);
            document.execCommand = (name) => { window.selected = String(document.activeElement.value);
                                               return works && old(name); };
        }""", works)
        page.click("#gl-link .gl-copy")
        page.wait_for_selector(f"#gl-link .gl-copied:text('{'Copied.' if works else 'Press Ctrl+C'}')")
        assert page.evaluate("window.selected") == f"{url}/?remove=7"
        assert page.is_visible(".gl-link-text") is not works


def test_on_a_space_the_link_has_its_public_host(browser, monkeypatch):
    monkeypatch.setenv("SPACE_HOST", "owner-name.hf.space")
    with served(make_run(pace=0.001, steps=1), limits=SHARED) as address:
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        page = context.new_page()
        goto(page, f"{address}?remove=7")
        page.click("#gl-link .gl-copy")
        page.wait_for_selector("#gl-link .gl-copied:text('Copied.')")
        assert page.evaluate("navigator.clipboard.readText()") == "https://owner-name.hf.space/?remove=7"
        context.close()



def test_a_teachers_link_hides_and_keeps_its_flags(browser, url):
    flags = "hide=similarity,methods,model,text,window,__proto__,%22%7D&embed=1&__theme=light"
    with opened(browser, f"{url}/?{flags}", ready="#gl-map") as page:
        page.wait_for_selector("#gl-panel-boundary")
        page.wait_for_selector("#gl-panel-similarity", state="hidden")
        page.wait_for_selector("#gl-methods", state="hidden")
        page.wait_for_selector("#gl-panel-share", state="hidden")
        seen = page.evaluate("[...document.querySelectorAll('#gl-side [id^=gl-]')]"
                             ".filter((each) => each.checkVisibility()).map((each) => each.id)")
        assert {"gl-tokens", "gl-criterion"} <= set(seen), "a row keeps what is not hidden"
        assert not {"gl-model", "gl-facts", "gl-text", "gl-about", "gl-upload", "gl-window"} & set(seen)
        write(page, "#gl-tokens input", "2048")
        wait_for_query(page, "tokens=2048")
        assert page.evaluate("location.search") == f"?tokens=2048&{flags}"
        assert page.faults == []


def test_the_code_follows_and_shows_text_as_text(page):
    write(page, "#gl-prompt textarea", PROMPT)
    page.click("#gl-code button")
    page.wait_for_function("text => document.querySelectorAll('.gl-code pre')[0]?.textContent.includes(text)",
                           arg="--prompt '<img src=x onerror=alert(1)> ${alert(2)} `tick` </script> {{value}}")
    assert "Experiment(" in page.locator(".gl-code pre").nth(1).text_content()


def test_what_is_shown_is_exported_and_imported_again(page, browser, url, tmp_path):
    write(page, "#gl-prompt textarea", PROMPT)
    run(page)
    name, data = download(page, "csv")
    assert name == "ghosted-SmolLM2-135M-Instruct-12-16.zip"
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        boundary = list(csv.DictReader(io.StringIO(zipped.read("figures/boundary.csv").decode())))
    drawn = page.evaluate("() => document.querySelector('#gl-plot-boundary .js-plotly-plot').data"
                          ".flatMap(t => Array.from(t.x, (x, i) => [x, t.y[i]]))")
    assert [[float(row["x"]), row["y"]] for row in boundary] == drawn
    name, data = download(page, "json")
    (tmp_path / name).write_bytes(data)
    assert json.loads(data)["experiment"]["prompt"] == PROMPT
    with opened(browser, url, ready="#gl-link .gl-copy") as other:
        other.set_input_files("#gl-import input, input[accept*='.safetensors']", str(tmp_path / name))
        other.wait_for_selector("#gl-shown :text('imported')")
        filled(other, "#gl-remove textarea, #gl-remove input", "12-16")
        other.wait_for_selector("#gl-plot-boundary .js-plotly-plot")
        assert other.input_value("#gl-prompt textarea") == PROMPT
        wait_for_query(other, "remove=12-16", "max-new-tokens=3")
        again = other.evaluate("() => document.querySelector('#gl-plot-boundary .js-plotly-plot').data"
                               ".flatMap(t => Array.from(t.x, (x, i) => [x, t.y[i]]))")
        assert [row[1] for row in again] == [row[1] for row in drawn]
        assert [row[0] for row in again] == pytest.approx([row[0] for row in drawn])
        (tmp_path / "foreign.json").write_text('{"a": "<img src=x onerror=alert(1)>"}')
        other.set_input_files("#gl-import input, input[accept*='.safetensors']", str(tmp_path / "foreign.json"))
        other.wait_for_selector("#gl-shown .gl-problem:text('was not exported')")
        assert other.faults == []


def test_the_repaired_model_is_exported_as_a_file(page):
    run(page)
    page.wait_for_selector("#gl-taking :text('adapter of ghosted, blocks 12-16')")
    page.click("#gl-take-form input")
    page.get_by_role("option", name="Checkpoint (transformers)", exact=True).click()
    page.wait_for_selector("#gl-taking :text('checkpoint of ghosted, blocks 12-16')")
    page.click("#gl-take")
    page.wait_for_selector("#gl-taking .gl-done")
    with page.expect_download() as waiting:
        page.click("#gl-take-file")
    assert waiting.value.suggested_filename == "ghosted-fake-ghosted-checkpoint.zip"
    with zipfile.ZipFile(waiting.value.path()) as archive:
        assert archive.read(archive.namelist()[0]) == b"12-16 ghosted checkpoint"


def test_pictures_are_saved_with_the_panel_and_blocks_in_their_name(page):
    run(page)
    page.wait_for_selector("#gl-plot-boundary .js-plotly-plot")
    for form, magic in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        tool = page.get_by_label(f"Save boundary as {form}")
        tool.focus()
        page.wait_for_function("() => getComputedStyle(document.activeElement.parentElement).opacity === '1'")
        with page.expect_download() as waiting:
            page.keyboard.press("Enter")
        assert waiting.value.suggested_filename == f"boundary-blocks-12-16.{form.lower()}"
        with open(waiting.value.path(), "rb") as file:
            saved = file.read()
        assert saved.startswith(magic) and len(saved) > 3_000
    see(page, "operator-A")
    page.wait_for_timeout(500)
    plots = page.locator(".gl-plot:has(.js-plotly-plot)").count()
    assert page.locator(".gl-plot:has(.js-plotly-plot) .gl-save").count() == plots > 3


def test_the_report_opens_without_a_server_or_a_network(page, browser, tmp_path):
    write(page, "#gl-prompt textarea", PROMPT)
    run(page)
    name, data = download(page, "report")
    (tmp_path / name).write_bytes(data)
    context = browser.new_context(offline=True)
    report = context.new_page()
    wrong, asked = [], []
    report.on("console", lambda message: message.type in ("error", "warning") and wrong.append(message.text))
    report.on("pageerror", lambda error: wrong.append(str(error)))
    report.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    report.on("request", lambda request: asked.append(request.url))
    report.goto((tmp_path / name).as_uri())
    report.wait_for_selector("[data-figure='boundary'] .main-svg")
    figures = report.locator("[data-figure]").count()
    report.wait_for_function("n => document.querySelectorAll('[data-figure] .main-svg').length >= n", arg=figures)
    assert figures >= 9 and wrong == [] and [each for each in asked if not each.startswith(("file:", "data:"))] == []
    assert PROMPT.split("${")[0] in report.inner_text("main")
    for width in (390, 1280):
        report.set_viewport_size({"width": width, "height": 900})
        report.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
    light = report.evaluate("getComputedStyle(document.body).backgroundColor")
    report.focus("#gl-theme")
    report.keyboard.press("Enter")
    assert report.evaluate("getComputedStyle(document.body).backgroundColor") != light
    # The policy holds: what is put in later neither runs nor loads.
    report.evaluate("() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
                    "document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x.png';"
                    "document.body.append(i); }")
    report.wait_for_timeout(200)
    assert report.evaluate("window.ran") is None and any("Content Security Policy" in each for each in wrong)
    context.close()
