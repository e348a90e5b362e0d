# The commands of the book. `make help` lists them.
# Every path here is relative, so that the book also works in a folder whose name has spaces.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first Python that is new enough. Another one: make book PYTHON=/path/to/python
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
IN_VENV := .venv/bin/python
INSTALLED := .venv/installed

help: ## list these commands
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

book: $(INSTALLED) ## execute every chapter into _build/ and build the site from these runs
	@$(IN_VENV) -m book_utils book

lab: $(INSTALLED) ## open the chapters in JupyterLab (its own options: make lab ARGS="--no-browser")
	@$(IN_VENV) -m book_utils lab $(ARGS)

test: $(INSTALLED) ## run all tests; nbval executes every notebook again and compares its outputs
	@$(IN_VENV) -m pytest

site: $(INSTALLED) ## build the site from the committed outputs, in seconds
	@$(IN_VENV) -m book_utils site

chapters: $(INSTALLED) ## for maintainers: execute every chapter and replace the committed notebooks and figures
	@$(IN_VENV) -m book_utils chapters

rerun: $(INSTALLED) ## run a chapter with other parameters: make rerun CHAPTER=04_shortcuts ARGS="-p depth 24"
	@$(IN_VENV) -m book_utils rerun $(CHAPTER) $(ARGS)

sweep: $(INSTALLED) ## run a chapter with many parameters: make sweep FILE=chapters/04_shortcuts.sweep.yml
	@$(IN_VENV) -m book_utils sweep "$(FILE)" $(ARGS)

lint: $(INSTALLED) ## for maintainers: check the code's form and the pairs
	@$(IN_VENV) -m ruff check .
	@$(IN_VENV) -m ruff format --check .
	@$(IN_VENV) -m book_utils pairs

clean: ## remove all that these commands made: .venv/, _build/ and caches
	rm -rf _build .venv .pytest_cache .hypothesis .ruff_cache chapters/.ruff_cache chapters/.ipynb_checkpoints

.PHONY: help book lab test site rerun sweep chapters lint clean

# The virtual environment: made once, and again only when what it holds is asked for differently.
$(INSTALLED): requirements.txt tests/peers.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; found: $$(python3 --version 2>&1 || true). Install one, or name it: make book PYTHON=/path/to/python3.12"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; $(PYTHON) is not one."; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "The Python module venv is missing. On Debian or Ubuntu: sudo apt install python3-venv"; exit 1; }
	@echo "Installing the book's packages into .venv (PyTorch is large: the first time takes some minutes) ..."
	@$(IN_VENV) -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv .venv
	@$(IN_VENV) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(IN_VENV) -m pip install --quiet --disable-pip-version-check --no-deps -r tests/peers.txt
	@touch $(INSTALLED)
