"""The site as a reader meets it: every page in a browser, from a folder and from a server, with no other address."""

import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from urllib.parse import unquote, urldefrag, urlparse

import axe_playwright_python
import pytest
from browser import chromium, needs_chromium

from book_utils.workbench import api, build, chapter_map
from book_utils.workbench.files import ROOT, chapter_scripts, other_pages

pytestmark = needs_chromium

CHAPTERS = [script.stem for script in chapter_scripts()]
PAGES = ["chapters/index", *(f"chapters/{name}" for name in CHAPTERS)]
PAGES += [*map(str, other_pages()), *(f"{api.FOLDER}/{name}" for name in [*api.modules(), "workbench"])]
each_page = pytest.mark.parametrize("page", [*PAGES, "search"])
SCREEN, PHONE = {"width": 1300, "height": 900}, {"width": 360, "height": 780}
RAW = re.compile(r":::|\{(admonition|dropdown|exercise|note|math|eq|ref|automodule)\}|\$\$|\[!NOTE\]|\\\(")
RESOLVED = "all => all.map(a => new URL(a.getAttribute('href'), document.baseURI).href)"
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built afresh beside the reader's own, and its two addresses."""
    folder = tmp_path_factory.mktemp("a site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "BUILD", folder)
        build.build_site()
    html = folder / "html"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=html))
    Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(html=html, file=html.as_uri(), server=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def reader(browser, site):
    """A page in the browser that may ask nobody but the site; what went wrong is in its `complaints`."""
    context = browser.new_context(viewport=SCREEN)
    complaints = []
    tab = context.new_page()

    def only_the_site(route):
        if route.request.url.startswith((site.file, site.server, "data:")):
            return route.continue_()
        complaints.append(f"asked {route.request.url}")
        return route.abort()

    context.route("**/*", only_the_site)
    tab.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("requestfailed", lambda request: left_behind(request) or complaints.append(f"failed: {request.url}"))
    tab.on("response", lambda answer: answer.status >= 400 and complaints.append(f"{answer.status}: {answer.url}"))
    yield SimpleNamespace(tab=tab, complaints=complaints, open=partial(visit, tab))
    context.close()


def left_behind(request):
    """Whether a request was given up since the reader went on to another page."""
    return request.failure == "net::ERR_ABORTED"


def visit(tab, address):
    tab.goto(address, wait_until="load")
    tab.evaluate("() => window.MathJax?.startup?.promise")


@each_page
@pytest.mark.parametrize("place", ["file", "server"])
def test_a_page_is_whole_and_asks_nobody_else(site, reader, page, place):
    reader.open(f"{getattr(site, place)}/{page}.html")
    tab = reader.tab
    assert tab.locator("h1:visible").count() == 1
    assert not RAW.search(tab.locator("body").inner_text())
    formulas = tab.locator(".math").count()
    assert tab.locator("mjx-container").count() >= formulas and tab.locator("mjx-merror").count() == 0
    for image in tab.locator("article img").all():
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
        assert len(image.get_attribute("alt") or "") > 30, image.get_attribute("src")
    tab.set_viewport_size(PHONE)
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert reader.complaints == []


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
    assert (ROOT / f"figures/{chapter_map.NAME}.svg").read_text("utf-8") == chapter_map.draw()


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_can_be_downloaded_and_leads_to_its_module(site, reader, name):
    reader.open(f"{site.file}/chapters/{name}.html")
    files = reader.tab.eval_on_selector_all("a.download", "all => all.map(a => a.href)")
    assert [file.rpartition("/")[2] for file in files] == [f"{name}.ipynb", f"{name}.py"]
    for file in files:
        kept = ROOT / "chapters" / file.rpartition("/")[2]
        assert Path(unquote(urlparse(file).path)).read_bytes() == kept.read_bytes()
    assert reader.tab.locator(f"article a[href='../{api.FOLDER}/{name[3:]}.html']").count()


def test_a_figure_opens_large_by_click_and_by_key_and_closes_with_escape(site, reader):
    reader.open(f"{site.file}/chapters/04_shortcuts.html")
    figure = reader.tab.locator("a[data-lightbox]").first
    large = reader.tab.locator("#lightbox img.lb-image")

    def width():
        return large.evaluate("image => image.getBoundingClientRect().width")

    for enter in (figure.click, lambda: (figure.focus(), reader.tab.keyboard.press("Enter"))):
        enter()
        large.wait_for(state="visible")
        reader.tab.wait_for_function(
            "document.querySelector('#lightbox img.lb-image').getBoundingClientRect().width > 300"
        )
        reader.tab.keyboard.press("Escape")
        large.wait_for(state="hidden")


def test_figures_have_their_words_folded_beneath(site, reader):
    reader.open(f"{site.file}/chapters/04_shortcuts.html")
    words = reader.tab.locator("details", has_text="Read this figure in words")
    assert words.count() == reader.tab.locator("a[data-lightbox]").count() >= 3
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


@each_page
def test_nothing_on_a_page_shuts_anybody_out(site, reader, page):
    """axe-core, with all its rules, on a screen and a phone, in the light and in the dark."""
    for scheme in ("light", "dark"):
        for size in (SCREEN, PHONE):
            reader.tab.emulate_media(color_scheme=scheme)
            reader.tab.set_viewport_size(size)
            reader.open(f"{site.file}/{page}.html")
            reader.tab.evaluate("Promise.allSettled(document.getAnimations().map(one => one.finished))")
            reader.tab.evaluate(AXE)
            found = reader.tab.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
            faults = {fault["id"]: [node["html"][:200] for node in fault["nodes"]] for fault in found}
            assert faults == {}, (scheme, size["width"])
