# Two commands matter: `make demo` and `make test`. Both set up all that they need.
.DEFAULT_GOAL := help
.PHONY: help demo demo-train test test-core test-plugin test-lowest attack lint bench docs clean screen

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
UV := $(shell command -v uv || echo .uv/bin/uv)
# A screen and an OpenGL that need no hardware, looked for when a target runs; on
# machines without xvfb (Windows, macOS) the real ones.
SCREEN = LIBGL_ALWAYS_SOFTWARE=1 $$(command -v xvfb-run >/dev/null && echo "xvfb-run -a")
# Two at a time: many wait for processes that they start. Each has a screen of its own.
CORE_TESTS := tests/core tests/attack -m "not slow" -n 2 --dist loadfile
PLUGIN_TESTS := tests/plugin -p napari -p npe2 -p pytest-qt -m "not slow" -n 2 --dist loadfile
LIBRARIES := xvfb xauth libgl1 libgl1-mesa-dri libegl1 libopengl0 libdbus-1-3 \
  libfontconfig1 libglib2.0-0 libxkbcommon-x11-0 libxcb-cursor0 libxcb-icccm4 \
  libxcb-image0 libxcb-keysyms1 libxcb-randr0 libxcb-render-util0 libxcb-shape0 \
  libxcb-xinerama0 fonts-dejavu-core

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/installed screen  ## open napari with a sample slide (without a display: write a screenshot)
	@if [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] || [ "$$(uname)" != Linux ]; then \
	  $(PY) -m napari_spt.demo; \
	else \
	  LIBGL_ALWAYS_SOFTWARE=1 xvfb-run -a -s "-screen 0 1280x800x24" \
	    $(PY) -m napari_spt.demo --screenshot demo/screenshot.png; \
	fi

demo-train: $(VENV)/installed screen  ## a short study of sample slides in the dock (without a display: pictures)
	@if [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] || [ "$$(uname)" != Linux ]; then \
	  $(PY) -m napari_spt.demo_train; \
	else \
	  LIBGL_ALWAYS_SOFTWARE=1 xvfb-run -a -s "-screen 0 1280x800x24" \
	    $(PY) -m napari_spt.demo_train --pictures demo; \
	fi

test: test-core test-plugin  ## run the tests

test-core: $(VENV)/installed
	OMP_NUM_THREADS=1 $(PY) -m pytest $(CORE_TESTS)

test-plugin: $(VENV)/installed screen
	$(SCREEN) $(PY) -m pytest $(PLUGIN_TESTS)

test-lowest: screen | $(UV)  ## run the tests with the oldest dependencies that setup.cfg allows
	$(UV) venv -q --clear .venv-lowest --python $$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	$(UV) pip install -q --compile-bytecode --python .venv-lowest/bin/python --resolution lowest-direct -e ".[test]"
	.venv-lowest/bin/python -m pytest $(CORE_TESTS)
	$(SCREEN) .venv-lowest/bin/python -m pytest $(PLUGIN_TESTS)

attack: $(VENV)/installed  ## try 3,800 bad files and lines, each in a limited process, soak, and kill 100 times (Linux)
	nice $(PY) -m tests.attack
	nice $(PY) -m tests.attack.soak
	nice $(PY) -m tests.attack.kills

lint: $(VENV)/installed  ## check style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: $(VENV)/installed screen  ## run the benchmarks; each prints one line per figure
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(PY) $$script || exit 1; done

docs: $(VENV)/installed  ## build the documentation into site/
	$(UV) pip install -q --python $(PY) -e ".[docs]"
	$(VENV)/bin/mkdocs build --strict

clean:  ## remove all that was made
	rm -rf .venv .venv-* .uv build dist site demo src_core/*.egg-info *.egg-info \
	  .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: setup.cfg pyproject.toml | $(UV)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "napari-spt needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(PY) || $(UV) venv -q $(VENV) --python $(PYTHON)
	@echo "Installing napari-spt and what it needs into $(VENV) (several GB with torch on Linux) ..."
	@$(UV) pip install -q --compile-bytecode --python $(PY) -e ".[all,test,bench,dev]"
	@touch $@

.uv/bin/uv:
	$(PYTHON) -m pip install -q --disable-pip-version-check --target .uv uv

# Debian and Ubuntu: install the missing libraries where we may, else say how.
screen:
	@if [ "$$(uname)" = Linux ] && command -v dpkg-query >/dev/null; then \
	  missing=""; \
	  for name in $(LIBRARIES); do \
	    dpkg-query -W -f='$${Status}' $$name 2>/dev/null | grep -q "ok installed" \
	      || dpkg-query -W -f='$${Status}' $${name}t64 2>/dev/null | grep -q "ok installed" \
	      || missing="$$missing $$name"; \
	  done; \
	  if [ -n "$$missing" ]; then \
	    if [ "$$(id -u)" = 0 ]; then as=""; else as="sudo -n"; fi; \
	    echo "Installing the screen and OpenGL libraries:$$missing"; \
	    { $$as apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	      $$as apt-get install -y -qq --no-install-recommends $$missing >/dev/null; } || \
	      { echo "Please run: sudo apt-get install$$missing"; exit 1; }; \
	  fi; \
	elif [ "$$(uname)" = Linux ] && ! command -v xvfb-run >/dev/null && [ -z "$$DISPLAY$$WAYLAND_DISPLAY" ]; then \
	  echo "There is no display: please install xvfb (xvfb-run) and Mesa's OpenGL."; exit 1; \
	fi
