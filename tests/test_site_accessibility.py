"""axe-core over every page of the site, with all its rules."""

from pathlib import Path

import axe_playwright_python
import pytest
from browser import PHONE, SCREEN, each_page, needs_chromium

pytestmark = needs_chromium

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")


def faults(tab):
    """Rule -> the elements that break it."""
    tab.evaluate("Promise.allSettled(document.getAnimations().map(one => one.finished))")
    tab.evaluate(AXE)
    found = tab.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    return {fault["id"]: [node["html"][:200] for node in fault["nodes"]] for fault in found}


@each_page
def test_a_page_shuts_nobody_out(site, reader, page):
    """On a screen and on a phone, in the light and in the dark."""
    for scheme in ("light", "dark"):
        for size in (SCREEN, PHONE):
            reader.tab.emulate_media(color_scheme=scheme)
            reader.tab.set_viewport_size(size)
            reader.open(f"{site.file}/{page}.html")
            assert faults(reader.tab) == {}, (scheme, size["width"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_figure_that_is_open_shuts_nobody_out(site, reader, scheme):
    reader.tab.emulate_media(color_scheme=scheme)
    reader.open(f"{site.file}/chapters/04_shortcuts.html")
    reader.tab.locator("a.enlarge").first.click()
    assert faults(reader.tab) == {}


@pytest.mark.parametrize("change", ["body.style.color = '#888'", "querySelector('article img').alt = ''"])
def test_the_look_for_faults_sees_one(site, reader, change):
    reader.open(f"{site.file}/chapters/04_shortcuts.html")
    reader.tab.evaluate(f"document.{change}")
    assert faults(reader.tab)
