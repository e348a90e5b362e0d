"""What the site is made of, without a browser: pages from docstrings, the map, the gathered troubles."""

from xml.etree import ElementTree

import pytest

from book_utils.workbench import api, chapter_map, troubleshooting
from book_utils.workbench.build import FOLLOWING
from book_utils.workbench.files import ROOT, chapter_scripts
from book_utils.workbench.site import link_to_library


@pytest.mark.parametrize(
    ("docstring", "rst"),
    [
        ("Plain, with `code` and a * sign.", r"Plain, with \ ``code``\  and a \* sign."),
        ("    x = f(1)\n    y = x", ".. code-block:: python\n\n    x = f(1)\n    y = x"),
        (
            "a     the first,\n      on two lines\nb, c  `d`",
            "``a``\n   the first, on two lines\n``b, c``\n   \\ ``d``\\ ",
        ),
        ("a  one\na_very_long_name\n   the other", "``a``\n   one\n``a_very_long_name``\n   the other"),
        ("See chapter 2.", "See :doc:`chapter 2 </chapters/02_layer_norm>`."),
        ("Another book, chapter 2; chapter 99.", "Another book, chapter 2; chapter 99."),
        ("What it does.\nSource: a paper.", "What it does.\n\nSource: a paper."),
    ],
)
def test_a_docstring_becomes_restructuredtext(docstring, rst):
    assert api.as_rst(docstring) == rst + "\n"


def test_the_library_has_a_page_for_each_public_module_in_the_order_of_the_chapters():
    files = {
        ".".join(path.relative_to(ROOT / "book_utils").with_suffix("").parts)
        for path in ROOT.glob("book_utils/**/*.py")
    }
    public = {name.removesuffix(".__init__") for name in files if not name.startswith(("_", "workbench"))}
    assert set(api.modules()) == public
    numbers = [api.chapter(name) for name in api.modules()]
    assert numbers == sorted(numbers) and set(numbers) == set(range(1, 14))


@pytest.mark.parametrize(
    ("path", "page"), [("kv_cache", "kv_cache"), ("parity/__init__", "parity"), ("parity/stages", "parity.stages")]
)
def test_a_link_to_a_module_leads_to_its_page(path, page):
    source = [f"the module [it](../book_utils/{path}.py), and [another](02_layer_norm.ipynb)"]
    link_to_library(None, "chapters/01_shell", source)
    assert source == [f"the module [it](../library/{page}.rst), and [another](02_layer_norm.ipynb)"]


@pytest.mark.parametrize("path", FOLLOWING)
def test_what_follows_from_the_chapters_is_in_step_with_them(path):
    assert (ROOT / path).read_text("utf-8") == FOLLOWING[path](), "`make chapters` brings it in step"


def test_the_map_has_a_link_for_each_chapter_and_none_in_the_picture():
    linked = ElementTree.fromstring(chapter_map.draw("{}.html"))
    links = [link.get("href") for link in linked.iter("{http://www.w3.org/2000/svg}a")]
    assert set(links) == {f"{script.stem}.html" for script in chapter_scripts()}
    assert "<a" not in chapter_map.draw()


def test_a_chapter_without_a_table_of_troubles_is_named(tmp_path, monkeypatch):
    script = tmp_path / "01_one.py"
    script.write_text("# %% [markdown]\n# # 1 · One\n#\n# ## When it goes wrong\n#\n# Nothing.\n")
    monkeypatch.setattr(troubleshooting, "chapter_scripts", lambda: [script])
    with pytest.raises(ValueError, match=r"01_one.py has no table under '## When it goes wrong'"):
        troubleshooting.gather()
