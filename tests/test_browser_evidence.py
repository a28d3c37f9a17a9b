"""The panel Evidence in the browser: cost beforehand, measure, stop, and what is wrong with a request."""

import pytest
from browser import opened
from pages import write_range

pytestmark = pytest.mark.browser


def test_evidence_is_measured_on_demand_with_its_cost_beforehand(browser, url):
    with opened(browser, url) as page:
        write_range(page, "14-18")
        page.get_by_label("How much text is enough").check()
        page.wait_for_function("() => document.querySelector('#gl-measuring').innerText.includes('tokens through')")
        page.get_by_label("Zero-shot tasks").check()
        page.wait_for_function("() => document.querySelector('#gl-measuring').innerText.includes('No task is named')")
        page.click("#gl-measure")
        page.wait_for_selector("#gl-measuring .gl-failed")
        page.get_by_label("Zero-shot tasks").uncheck()
        page.click("#gl-measure")
        page.wait_for_selector("#gl-evidence table")
        assert page.locator("#gl-evidence table").count() == 3
        page.wait_for_function("() => document.querySelector('#gl-measuring').innerText.includes('14-18')")
        assert "This model is broken" in page.inner_text("#gl-evidence")
        page.locator("#gl-panel-evidence").scroll_into_view_if_needed()
        for name in ("losses", "sequences"):
            page.wait_for_selector(f"#gl-plot-evidence-{name} .main-svg")
        assert page.locator("#gl-measure").is_enabled() and not page.locator("#gl-measure-stop").is_enabled()
        assert page.faults == []
