"""Every chapter in JupyterLab as `make lab` serves it, in a browser: run, look, save, edit, undo.

The server runs over a copy of the book, which is a git repository of its own in a folder whose name has a space.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import nbformat
import pytest
from browser import chromium, needs_chromium
from playwright.sync_api import expect

from book_utils.workbench.files import ROOT, chapter_scripts

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(shutil.which("git") is None, reason="no git on the path: JupyterLab was not tried in a browser"),
]
SECONDS = 1000  # playwright counts milliseconds
A_CHAPTER = 600 * SECONDS  # that it may run, also on a slow machine that is busy
# JupyterLab 4.6 stumbles, without harm, where it asks whether the tools of a cell cover a text that is being rendered.
OF_LAB = "_markdownOverlapsToolbar"
READY = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
RENDERED = """() => {
    const cells = [...document.querySelectorAll('.jp-MarkdownCell')]
    return cells.length && cells.every(cell => cell.querySelector('.myst')?.textContent)
}"""


class Lab:
    """A running JupyterLab over a copy of the book, and a browser that looks at it."""

    def __init__(self, folder: Path, url: str, token: str, browser):
        self.folder, self.url, self.token = folder, url, token
        self.context = browser.new_context(viewport={"width": 1300, "height": 900})
        self.context.set_default_timeout(60 * SECONDS)
        self.outside = []  # what a page asked of any other address
        self.context.route(lambda url: not url.startswith((self.url, "data:", "blob:")), self._refuse)

    def _refuse(self, route):
        self.outside.append(route.request.url)
        route.abort()

    @contextmanager
    def opened(self, notebook: str):
        """A page with this notebook and an idle kernel. It keeps its console's errors, and all that it asked for."""
        page = self.context.new_page()
        page.errors, page.asked = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: OF_LAB in error.stack or page.errors.append(error.stack))
        try:
            page.goto(f"{self.url}lab/tree/{notebook}?reset&token={self.token}")
            page.wait_for_function(READY)
            page.evaluate("() => window.jupyterapp.restored")
            page.wait_for_function(RENDERED)
            yield page
        finally:
            page.evaluate("() => window.jupyterapp?.serviceManager.sessions.shutdownAll()")
            page.close()

    def git(self, *arguments: str) -> str:
        return git(self.folder, *arguments)


def git(folder: Path, *arguments: str) -> str:
    own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}  # a hook's git is another one
    own |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}  # nor do the reader's settings matter
    command = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost", *arguments]
    return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder, own = tmp_path_factory.mktemp("lab") / "the book", tmp_path_factory.mktemp("jupyter")
    for name in ("book_utils", "chapters", "figures"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in (".gitignore", "_toc.yml", "pyproject.toml"):
        shutil.copy2(ROOT / name, folder)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "the book")
    environment = {**os.environ, "PYTHONPATH": str(folder)}  # for kernels: the copy's book_utils
    environment.pop("BOOK_FIGURES", None)
    places = {"CONFIG": "config", "DATA": "data", "RUNTIME": "runtime"}  # nothing of the settings of who runs the tests
    environment |= {f"JUPYTER_{name}_DIR": str(own / place) for name, place in places.items()}
    command = [sys.executable, "-m", "book_utils", "lab", "--no-browser", "--port=0", "--allow-root"]
    command += ["--LabApp.expose_app_in_browser=True"]  # so that a test can ask what the page holds
    with (own / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        found = until(lambda: list((own / "runtime").glob("jpserver-*.json")) or server.poll() is not None)
        assert found and server.poll() is None, (own / "log").read_text()
        place = until(lambda: json.loads(found[0].read_text() or "null"))
        with chromium() as browser:
            yield Lab(folder, place["url"], place["token"], browser)
    finally:
        server.terminate()
        server.wait(60)


def until(question, seconds: float = 60):
    """Ask until the answer is yes, and return it."""
    end = time.monotonic() + seconds
    while not (answer := question()) and time.monotonic() < end:
        time.sleep(0.05)
    return answer


# What a reader does


def run_all(page) -> None:
    """What Run > Run All Cells does, and wait for its end."""
    page.evaluate(
        """() => {
            window.jupyterapp.commands.execute('notebook:run-all-cells').then(() => { window.ran = true })
        }"""
    )
    page.wait_for_function("() => window.ran", timeout=A_CHAPTER)
    page.wait_for_function(READY)


def save(page) -> None:
    page.keyboard.press("Control+s")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.model.dirty")


def edit_first_cell(page, *keys: str, text: str = "") -> None:
    """Open the first cell, which is Markdown, go to its end, type or press keys, and render it again."""
    cell = page.locator(".jp-Cell").first
    cell.locator("h1").click()
    page.keyboard.press("Enter")
    cell.locator(".cm-content:focus").wait_for()
    page.keyboard.press("Control+End")
    page.keyboard.insert_text(text)
    for key in keys:
        page.keyboard.press(key)
    page.keyboard.press("Control+Enter")
    cell.locator(".myst").wait_for()


# What a reader sees


def shown(page) -> dict:
    """The notebook as the page holds it."""
    return page.evaluate("() => window.jupyterapp.shell.currentWidget.model.toJSON()")


def compared(notebook: dict) -> list:
    """What a run shows and nbval compares: the cells with their numbers and outputs, drawings aside.

    Nor the widgets, which are there for someone who reads and are not saved.
    """
    return [
        (
            cell["cell_type"],
            whole(cell["source"]),
            cell.get("execution_count"),
            [
                (output["output_type"], output.get("name"), whole(output.get("text", "")), texts(output))
                for output in cell.get("outputs", [])
                if "nbval-ignore-output" not in cell["metadata"].get("tags", []) and not is_widget(output)
            ],
        )
        for cell in notebook["cells"]
    ]


def whole(text: str | list) -> str:
    return "".join(text)


def is_widget(output: dict) -> bool:
    return any("widget" in mime for mime in output.get("data", {}))


def texts(output: dict) -> dict:
    return {mime: whole(data) for mime, data in output.get("data", {}).items() if not mime.startswith("image/")}


def differing(a: dict, b: dict) -> list:
    """The cells in which two notebooks differ, where they are compared."""
    a, b = compared(a), compared(b)
    pairs = [(number, *pair) for number, pair in enumerate(zip(a, b, strict=False), 1) if pair[0] != pair[1]]
    return pairs if len(a) == len(b) else [*pairs, (len(a), len(b))]


def errors_of_cells(page) -> list[str]:
    outputs = [output for cell in shown(page)["cells"] for output in cell.get("outputs", [])]
    return [output["evalue"] for output in outputs if output["output_type"] == "error"]


def raw_markdown(page) -> list[str]:
    """Texts on the page that should have been rendered, or failed to."""
    cells = page.evaluate(
        """() => [...document.querySelectorAll('.jp-MarkdownCell')].map(cell => {
            const text = (cell.querySelector('.myst') ?? cell).cloneNode(true)
            const wrong = text.querySelectorAll('.katex-error, .inline-error').length ? ' not understood ' : ''
            for (const code of text.querySelectorAll('code, pre, .katex')) code.remove()
            return text.textContent + wrong
        })"""
    )
    signs = r":::|\{[a-z]+\}|\$|\*\*|\]\(|\[!|^#+ | not understood |^\s*$"
    return [text for text in cells if re.search(signs, text, re.MULTILINE)]


def unfolded(page) -> list[str]:
    """Answers, and figures in words, that are open."""
    return page.evaluate("() => [...document.querySelectorAll('.jp-Cell details[open]')].map(d => d.textContent)")


def dark_pictures(page) -> list[str]:
    """Pictures that did not load, and pictures without words: alternative text, or the steps right below.

    JupyterLab gives the drawings that a cell shows no alternative text, though they bring one.
    """
    page.wait_for_function("() => [...document.querySelectorAll('.jp-Cell img')].every(img => img.complete)")
    return page.evaluate(
        """() => [...document.querySelectorAll('.jp-Cell img')].filter(img => {
            const below = img.closest('.jp-OutputArea-child')?.nextElementSibling
            return !img.naturalWidth || !(img.alt || below?.querySelector('details li'))
        }).map(img => img.src.slice(0, 60))"""
    )


def faults(lab, page, committed: dict) -> dict[str, list]:
    """All that a reader should not see, by kind; kinds without a fault are left out."""
    found = {
        "errors": errors_of_cells(page),
        "other outputs": differing(committed, shown(page)),
        "raw": raw_markdown(page),
        "unfolded": unfolded(page),
        "dark": dark_pictures(page),
        "asked outside": lab.outside[:],
        "console": page.errors[:],
    }
    lab.outside.clear()
    return {kind: what for kind, what in found.items() if what}


# The tests


def test_the_server_listens_to_this_machine_alone_and_asks_for_its_token(lab):
    port = int(lab.url.rstrip("/").rpartition(":")[2])
    assert lab.url == f"http://127.0.0.1:{port}/" and len(lab.token) >= 32
    others = {"127.0.0.2", "::1"}
    with suppress(OSError):  # a machine may not know its own name
        others |= {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
    for address in others - {"127.0.0.1"}:
        with pytest.raises(OSError):
            socket.create_connection((address, port), timeout=5).close()
    for path in ("api/contents/chapters", "files/_toc.yml"):
        assert refused(f"{lab.url}{path}") and refused(f"{lab.url}{path}?token=another")
        assert not refused(f"{lab.url}{path}?token={lab.token}")


def refused(url: str) -> bool:
    """Whether the server answers 403, or with a page that asks for the token."""
    try:
        with urlopen(url) as answer:
            return "/login" in answer.url
    except HTTPError as error:
        error.close()
        return error.code == 403


@pytest.mark.parametrize("script", chapter_scripts(), ids=lambda script: script.stem)
def test_a_chapter_runs_reads_well_and_is_saved_without_a_trace(lab, script):
    notebook = script.with_suffix(".ipynb").relative_to(ROOT).as_posix()
    committed = nbformat.read(lab.folder / notebook, as_version=4)
    with lab.opened(notebook) as page:
        run_all(page)
        assert faults(lab, page, committed) == {}
        last = [cell["outputs"] for cell in committed["cells"] if cell["cell_type"] == "code"][-1]
        area = page.locator(".jp-CodeCell").last.locator(".jp-OutputArea-output").last
        area.scroll_into_view_if_needed()
        expect(area).to_contain_text(whole(last[-1]["text"]).strip(), use_inner_text=True, timeout=60 * SECONDS)

        answers = page.locator(".jp-MarkdownCell details")
        assert answers.count() == sum(cell["source"].count("{dropdown}") for cell in committed["cells"]) > 0
        answers.first.locator("summary").click()
        expect(answers.first.locator(".details-body")).to_be_visible()
        assert len(unfolded(page)) == 1
        answers.first.locator("summary").click()

        # saved: drawings, and digits of a training that nothing compares, may differ between machines
        save(page)
        assert set(lab.git("status", "--short").split()) <= {"M", notebook}
        assert differing(committed, nbformat.read(lab.folder / notebook, as_version=4)) == []
        lab.git("commit", "--quiet", "--all", "--allow-empty", "--message", "run")

        edit_first_cell(page, text="\n\nA reader's remark.")
        save(page)
        assert "# A reader's remark." in (lab.folder / script.relative_to(ROOT)).read_text("utf-8").splitlines()
        edit_first_cell(page, "Control+z")
        save(page)
        assert lab.git("diff", "--name-only") == "" and lab.git("ls-files", "--others", "--exclude-standard") == ""

        assert page.locator(".jp-Dialog, .Toastify__toast").count() == 0  # no question, and no news
        assert not [url for url in page.asked if re.search("api/(news|update|extensions)", url)]
        assert page.errors == lab.outside == []


def test_sliders_move_the_curve_of_chapter_4(lab):
    with lab.opened("chapters/04_shortcuts.ipynb") as page:
        run_all(page)
        picture = page.locator(".jupyter-widgets img")
        picture.scroll_into_view_if_needed()
        before = picture.get_attribute("src")
        assert "each of 5 layers with 3 features at seed 123" in picture.get_attribute("alt")

        page.get_by_role("slider").first.press("ArrowRight")
        page.wait_for_function("() => document.querySelector('.jupyter-widgets img').alt.includes('each of 6 layers')")
        page.get_by_role("slider").nth(1).press("ArrowLeft")
        page.wait_for_function("() => document.querySelector('.jupyter-widgets img').alt.includes('with 2 features')")
        page.get_by_role("spinbutton", name="seed").fill("7")
        page.get_by_role("spinbutton", name="seed").press("Enter")
        page.wait_for_function("() => document.querySelector('.jupyter-widgets img').alt.includes('at seed 7,')")
        page.get_by_role("checkbox", name="shortcuts").press("Space")
        page.wait_for_function("() => document.querySelector('.jupyter-widgets img').alt.includes('The line without')")
        assert picture.get_attribute("src") != before and picture.evaluate("img => img.naturalWidth") > 600
        assert page.errors == lab.outside == []


def test_each_fault_is_seen(lab):
    """The looks above can fail: a notebook that has every fault."""
    new, cell = nbformat.v4, nbformat.v4.new_code_cell
    broken = new.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        cells=[
            new.new_markdown_cell("# Broken\n\nThe end of a block is left over:\n\ntext ::::"),
            new.new_markdown_cell("::::{dropdown} Answer\n:open:\n\nfor all to see\n\n::::"),
            new.new_markdown_cell("A picture: ![](https://example.invalid/picture.png)"),
            cell("print('new')", execution_count=1, outputs=[new.new_output("stream", text="old\n")]),
            cell("1 / 0", execution_count=2, outputs=[]),
        ],
    )
    path = lab.folder / "_build" / "broken.ipynb"  # which git ignores
    path.parent.mkdir(exist_ok=True)
    nbformat.write(broken, path)
    with lab.opened("_build/broken.ipynb") as page:
        run_all(page)
        found = faults(lab, page, broken)
    assert found["errors"] == ["division by zero"]
    assert [number for number, *_ in found["other outputs"]] == [4, 5]
    assert len(found["raw"]) == 1 and "::::" in found["raw"][0]
    assert len(found["unfolded"]) == 1 and "for all to see" in found["unfolded"][0]
    assert found["dark"] and set(found["asked outside"]) == {"https://example.invalid/picture.png"}
    assert any("ERR_FAILED" in text for text in found["console"])
