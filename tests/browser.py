"""A headless Chromium for the tests that look at pages as a reader does."""

import os
import shutil
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

# CHROMIUM names another one, say Chrome's.
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
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
