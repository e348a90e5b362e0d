"""The site as a reader meets it: every page in a browser, from a folder and from a server, with no other address."""

import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest
from browser import CHAPTERS, PAGES, PHONE, SCREEN, each_page, needs_chromium
from playwright.sync_api import Error

from book_utils.workbench import api
from book_utils.workbench.files import ROOT

pytestmark = needs_chromium

RAW = re.compile(r":::|\{(admonition|dropdown|exercise|note|math|eq|ref|automodule)\}|\$\$|\[!NOTE\]|\\\(")
RESOLVED = "all => all.map(a => new URL(a.getAttribute('href'), document.baseURI).href)"


def look_at(reader, address):
    """Open a page and assert that it is whole, and that it asked nobody but the site."""
    reader.open(address)
    tab = reader.tab
    assert tab.locator("h1:visible").count() == 1
    assert not RAW.search(tab.locator("body").inner_text())
    assert tab.locator("mjx-container").count() >= tab.locator(".math").count()
    assert tab.locator("[data-mml-node=merror], mjx-container [fill=red]").count() == 0  # MathJax's complaints
    for image in tab.locator("article img").all():
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
        assert len(image.get_attribute("alt") or "") > 30, image.get_attribute("src")
    for width in (360, 320):
        tab.set_viewport_size({**PHONE, "width": width})
        assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert reader.complaints == []


@each_page
@pytest.mark.parametrize("place", ["file", "server"])
def test_a_page_is_whole_and_asks_nobody_else(site, reader, page, place):
    look_at(reader, f"{getattr(site, place)}/{page}.html")


ALT = "A picture of something that has an alternative text"
BROKEN = {
    "a raw directive": "<p>:::{admonition} Exercise</p>",
    "a formula that is not set": '<div class="math">x</div>',
    "an unknown command": r'<div class="math">\[\nosuchcommand{x}\]</div>',
    "half a formula": r'<div class="math">\[\frac{x\]</div>',
    "a picture without words": '<img src="../_static/plus.png" alt="plus">',
    "a picture that is not there": f'<img src="nowhere.png" alt="{ALT}">',
    "another address": '<script src="https://example.org/script.js"></script>',
    "an error": "<script>nowhere.at.all</script>",
    "something wide": '<div style="width: 400px">wide</div>',
    "a second title": "<h1>Another</h1>",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_each_fault_of_a_page_is_seen(site, reader, fault):
    whole = (site.html / "chapters" / "02_layer_norm.html").read_text("utf-8")
    (site.html / "chapters" / "broken.html").write_text(
        whole.replace("</article>", f"{BROKEN[fault]}</article>"), "utf-8"
    )
    with pytest.raises((AssertionError, Error)):
        look_at(reader, f"{site.file}/chapters/broken.html")


def test_no_link_inside_the_site_is_dead(site, reader):
    links, names = set(), {}
    for page in [*PAGES, "search"]:
        reader.open(f"{site.file}/{page}.html")
        found = reader.tab.eval_on_selector_all("a[href]", RESOLVED)
        links |= {(page, link) for link in found}
        names[reader.tab.url] = set(reader.tab.eval_on_selector_all("[id]", "all => all.map(one => one.id)"))
    inside = [(page, urldefrag(link)) for page, link in links if link.startswith(site.file)]
    assert len(inside) > 300
    for page, (address, name) in inside:
        assert Path(unquote(urlparse(address).path)).is_file(), f"{page} leads to {address}"
        assert not name or address not in names or unquote(name) in names[address], f"{page} leads to {address}#{name}"


def test_the_pages_follow_each_other_as_the_side_bar_lists_them(site, reader):
    reader.open(f"{site.file}/chapters/index.html")
    captions = reader.tab.locator(".bd-sidebar-primary .caption-text").all_inner_texts()
    assert captions == ["The parts", "The model", "In use", "To look up"]
    seen = ["chapters/index"]
    while (following := reader.tab.locator("a.right-next")).count():
        following.click()
        seen.append(reader.tab.url.removeprefix(f"{site.file}/").removesuffix(".html"))
        back = reader.tab.locator("a.left-prev").get_attribute("href")
        assert back.removesuffix(".html").rpartition("/")[2] == seen[-2].rpartition("/")[2]
    assert seen == PAGES


def test_the_map_leads_to_every_chapter(site, reader):
    reader.open(f"{site.file}/chapters/index.html")
    boxes = reader.tab.locator("svg.map a")
    assert {box.get_attribute("href") for box in boxes.all()} == {f"{name}.html" for name in CHAPTERS}
    boxes.filter(has_text="Shortcuts").focus()
    reader.tab.keyboard.press("Enter")
    reader.tab.wait_for_url("**/04_shortcuts.html")


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_can_be_downloaded_and_leads_to_its_module(site, reader, name):
    reader.open(f"{site.file}/chapters/{name}.html")
    files = reader.tab.eval_on_selector_all("a.download", "all => all.map(a => a.href)")
    assert [file.rpartition("/")[2] for file in files] == [f"{name}.ipynb", f"{name}.py"]
    for file in files:
        kept = ROOT / "chapters" / file.rpartition("/")[2]
        assert Path(unquote(urlparse(file).path)).read_bytes() == kept.read_bytes()
    built = [f"../{api.FOLDER}/{module}.html" for module in api.modules() if api.chapter(module) == int(name[:2])]
    assert any(reader.tab.locator(f"article a[href='{page}']").count() for page in built)


@pytest.mark.parametrize("size", [SCREEN, PHONE], ids=["screen", "phone"])
def test_figures_open_large_by_click_and_by_key_and_close_with_escape(site, reader, size):
    reader.tab.set_viewport_size(size)
    reader.open(f"{site.file}/chapters/07_gpt_model.html")  # its figure is higher than wide
    link, large = reader.tab.locator("a.enlarge").first, reader.tab.locator("dialog.large-figure img")
    for enter in (link.click, lambda: (link.focus(), reader.tab.keyboard.press("Enter"))):
        enter()
        large.wait_for(state="visible")
        box = large.bounding_box()
        assert box["width"] >= 640 and 0 <= box["x"] < size["width"] / 2 and 0 <= box["y"] < size["height"] / 2
        assert large.get_attribute("alt") == link.locator("img").get_attribute("alt")
        reader.tab.keyboard.press("Escape")
        large.wait_for(state="hidden")
        assert link.evaluate("link => link === document.activeElement")
    reader.open(f"{site.file}/chapters/04_shortcuts.html")
    for link in reader.tab.locator("a.enlarge").all():
        link.click()
        assert large.bounding_box()["width"] > link.bounding_box()["width"]
        reader.tab.keyboard.press("Escape")


def test_figures_have_their_words_folded_beneath(site, reader):
    reader.open(f"{site.file}/chapters/04_shortcuts.html")
    words = reader.tab.locator("details", has_text="Read this figure in words")
    assert words.count() == reader.tab.locator("a.enlarge").count() >= 3
    for folded in words.all():
        assert folded.get_attribute("open") is None
        folded.locator("summary").focus()
        reader.tab.keyboard.press("Enter")
        assert folded.locator("ol li").first.is_visible()


def test_the_search_finds_without_a_network(site, reader):
    for place in (site.file, site.server):
        reader.open(f"{place}/search.html?q=unbiased")
        reader.tab.locator("#search-results li a", has_text="Layer normalization").first.wait_for()
    reader.open(f"{site.server}/chapters/index.html")
    reader.tab.keyboard.press("Control+k")
    reader.tab.keyboard.type("truncate")
    reader.tab.keyboard.press("Enter")
    reader.tab.locator("#search-results li a", has_text="kv_cache").first.wait_for()
    assert reader.complaints == []


def test_code_can_be_copied(site, reader):
    reader.tab.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.server)
    reader.open(f"{site.server}/chapters/02_layer_norm.html")
    cell = reader.tab.locator(".cell_input .highlight").first
    cell.hover()
    cell.locator("button.copybtn").click()
    assert reader.tab.evaluate("navigator.clipboard.readText()").strip() == cell.locator("pre").inner_text().strip()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_light_or_dark_as_the_readers_system(site, reader, scheme):
    reader.tab.emulate_media(color_scheme=scheme)
    reader.open(f"{site.file}/chapters/02_layer_norm.html")
    assert reader.tab.evaluate("document.documentElement.dataset.theme") == scheme
    color = reader.tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", color)[:3])) < 200) == (scheme == "dark")
