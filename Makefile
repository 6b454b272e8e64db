# Two commands do everything: `make train` runs the main job, `make test` runs the checks. Both make .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: train test env system clean

train: $(VENV)/.installed
	$(BIN)/oncurve train $(ARGS)

test: $(VENV)/.installed system
	PATH="$(abspath $(BIN)):$$PATH" scripts/check

env: $(VENV)/.installed system

$(VENV)/.installed: pyproject.toml constraints.txt scripts/make-venv
	scripts/make-venv $(PYTHON) $(VENV)
	touch $@

system:
	scripts/system-packages

clean:
	rm -rf $(VENV)
