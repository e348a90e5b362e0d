"""A headless Chromium for the tests that look at pages as a reader does, and the site to look at."""

import os
import shutil
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace

import pytest
from playwright.sync_api import Browser, sync_playwright

from book_utils.workbench import api, build
from book_utils.workbench.files import chapter_scripts, other_pages

# CHROMIUM names another one, say Chrome's.
NAMES = (os.environ.get("CHROMIUM", "chromium"), "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium on the path (Debian's package is chromium): pages were not opened in a browser",
)


@contextmanager
def chromium() -> Browser:
    """Chromium, without its own errands on the network."""
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=quiet)
        try:
            yield browser
        finally:
            browser.close()


CHAPTERS = [script.stem for script in chapter_scripts()]
PAGES = ["chapters/index", *(f"chapters/{name}" for name in CHAPTERS)]
PAGES += [*map(str, other_pages()), *(f"{api.FOLDER}/{name}" for name in [*api.modules(), "workbench"])]
each_page = pytest.mark.parametrize("page", [*PAGES, "search"])
SCREEN, PHONE = {"width": 1300, "height": 900}, {"width": 360, "height": 780}


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
