"""What several tests share."""

import os
import tempfile

import jaxtyping
import pytest
import torch
from browser import browser, reader, site  # noqa: F401 - fixtures, for the tests of the site
from hypothesis import settings
from small_book import one_small_book, small_book  # noqa: F401 - fixtures, for the tests of reruns and sweeps

from book_utils import get_config

# nbval's kernels, too, run without the IPython settings of whoever runs the tests.
settings_of_nobody = tempfile.TemporaryDirectory(prefix="ipython-")  # removed at exit
os.environ["IPYTHONDIR"] = settings_of_nobody.name
# There are as many workers as cores. With one thread each, they and the kernels they start do not fight for them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
# The same examples on every run: a red test is red again for the one who mends it. No deadline: machines differ.
settings.register_profile("book", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("book")


@pytest.fixture
def cfg():
    """The book's tiny configuration."""
    return get_config("tiny")


@pytest.fixture
def as_readers_see():
    """Without the checked signatures of the test run, so that an error is the one that a reader gets."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
