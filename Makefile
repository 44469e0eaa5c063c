BIN ?= .venv/bin

.PHONY: install fmt lint types test chaos bench check
install: ; python3 -m venv .venv && $(BIN)/pip install -q -e '.[dev]'
fmt: ; $(BIN)/ruff check --fix . && $(BIN)/ruff format .
lint: ; $(BIN)/ruff check . && $(BIN)/ruff format --check .
types: ; $(BIN)/mypy
test: ; $(BIN)/pytest -q
chaos: ; $(BIN)/python -m tests.chaos --seeds 1-$(or $(N),20) --jobs 2 --table
bench: ; $(BIN)/ssp-redis bench
check: lint types test
