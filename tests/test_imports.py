"""Commands that compute nothing with a model, and bad input: neither waits for the libraries that compute.

One process of its own runs all of them, and stops at the first after which such a library is there.
"""

import json
import os
import subprocess
import sys

import pytest
from typer.main import get_command

from retrieval_interp.cli import app
from retrieval_interp.models.library import data_folder

HEAVY = ("torch", "transformer_lens", "transformers", "pandas")
RUNNING = """
import contextlib, io, json, sys
from retrieval_interp.cli import main

heavy, lines = json.load(sys.stdin)
for expected, arguments in lines:
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code
    said = f"{arguments}: exit code {code}, {errors.getvalue()!r}"
    assert code == expected, said
    assert code == 0 or errors.getvalue().count("\\n") == 1, said
    assert arguments[0] in ("frobnicate", "--frob") or "No such command" not in errors.getvalue(), said
    there = [name for name in heavy if name in sys.modules]
    assert not there, f"{said}: imports {', '.join(there)}"
print(len(lines))
"""
DESCRIBING = """
models presets ; models presets --json
theory depth ; theory depth 1 2 3 --json ; theory facts FACTS ; theory facts FACTS --json
llm prompts equations --n 2 ; llm prompts kingdoms --n 2 --json
"""
BAD = """
frobnicate ; --frob ; validate
validate transformer_a --frob ; theory depth 0 ; theory depth two ; theory depth --out NOWHERE
theory facts nowhere.yaml ; theory facts damaged.yaml ; llm prompts nonsense ; llm prompts kingdoms --steps 2
llm prompts equations --n 0 ; llm prompts equations --seed -1

discover nowhere
view nowhere
validate nowhere ; study emergence nowhere ; models export nowhere to ; models push nowhere hf:a/b
models push bare elsewhere ; models push transformer_a hf: ; models push transformer_a hf:a
validate bare ; validate bare --circuit nowhere.yaml
validate bare --circuit damaged.yaml ; validate bare --circuit odd.yaml ; validate bare --circuit bare
validate oddly ; study emergence bare ; validate weightless
validate cut_off ; validate no_json ; discover no_format
discover no_task ; models export no_size to
view no_field ; view no_json
models export no_json to
models export bare bare ; models export bare to --checkpoint 3
validate transformer_a --threshold nan ; validate transformer_a --examples 1
discover transformer_a --examples 1 ; discover transformer_a --threshold 0
validate induction --circuit high.yaml ; validate induction --circuit role.yaml ; view induction --layer 99
validate transformer_a --out NOWHERE ; discover transformer_a --out NOWHERE
view bare --out NOWHERE
study emergence transformer_a --out NOWHERE ; study emergence logless ; view bare bare
view transformer_a induction ; view bare --training
reproduce nowhere

train ; train nothing ; train tiny --set frob=1 ; train tiny --set lr=-1 ; train tiny --seed -1
train tiny --set seed=3 ; train tiny --set name=x ; train tiny --set lr=1 --set lr=2 ; models export unfinished to
train tiny --resume ; train --resume --out nowhere ; train --resume --out bare ; train tiny --out bare
train tiny --device frob ; train tiny --steps 0 ; train tiny --out NOWHERE
study sweep nothing
study sweep damaged.yaml ; study sweep odd.yaml ; study sweep unknown.yaml ; study sweep curricula --scale paper
study sweep figure4 --device frob ; study sweep figure4 --out NOWHERE
llm ask
llm ask --model a/b --from-logs logs ; llm ask --model a/b --formulations nonsense
llm ask --model a/b --steps x ; llm ask --model a/b --out NOWHERE
"""


def command_lines(table: str) -> list[list[str]]:
    """Those of a table, in which a semicolon or the end of a line stands after each."""
    places = {"FACTS": str(data_folder() / "facts" / "functions.yaml"), "NOWHERE": "/proc/nothing"}
    lines = [line.split() for line in table.replace("\n", ";").split(";")]
    return [[places.get(word, word) for word in line] for line in lines if line]


def every_command(group=None, before=()):
    """The words of every command, and of every group."""
    for name, one in (group or get_command(app)).commands.items():
        yield (*before, name)
        if hasattr(one, "commands"):
            yield from every_command(one, (*before, name))


@pytest.fixture
def folder(tmp_path):
    """Model directories, circuits, reports and runs, each with something wrong."""
    architecture = {"n_layers": 1, "n_heads": 1, "d_model": 4, "d_head": 4, "attn_only": True}
    architecture |= {"n_ctx": 6, "d_vocab": 4, "d_vocab_out": 2}
    config = {"format": 1, "task": {"n_steps": 1, "n_chains": 2, "n_dims": 2}, "architecture": architecture}
    odd = {
        **{"bare": config, "oddly": config, "weightless": config, "cut_off": config, "logless": config},
        **{"no_format": {**config, "format": 7}, "no_task": {**config, "task": {"n_steps": 0}}},
        "no_size": {**config, "architecture": {**architecture, "n_layers": "many"}},
        "no_field": {**config, "architecture": {**architecture, "frob": 1}},
        "no_json": "{",
    }
    for name, said in odd.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(said if isinstance(said, str) else json.dumps(said))
        if name != "weightless":
            header = b"{}" if name != "cut_off" else b"{"
            (tmp_path / name / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (tmp_path / "oddly" / "circuit.yaml").write_text("heads: {L0H0: sideways}\n")
    (tmp_path / "logless" / "circuit.yaml").write_text("heads: {L0H0: previous}\n")
    (tmp_path / "odd.yaml").write_text("heads: {L0H0: {query: [a]}}\n")
    (tmp_path / "high.yaml").write_text("heads: {L40H0: uniform}\n")
    (tmp_path / "role.yaml").write_text("heads: {L0H0: {query: nobody}}\n")
    (tmp_path / "damaged.yaml").write_text("heads: [\n")
    (tmp_path / "unknown.yaml").write_text("seeds: 1\npresets: [nothing]\n")
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "config.json").write_text(json.dumps(config))
    (tmp_path / "unfinished" / ".lock").touch()
    return tmp_path


def test_importing_the_packages_leaves_the_environment_of_the_process_as_it_is():
    program = """if True:
        import os
        before = dict(os.environ)
        import circuits, retrieval_interp.__main__, retrieval_interp.cli
        circuits.Circuit, retrieval_interp.RetrievalTask
        import circuits.model.layers, torch
        assert os.environ == before, {*os.environ.items()} ^ {*before.items()}"""
    names = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
    environment = {name: value for name, value in os.environ.items() if name not in names}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@pytest.mark.slow
def test_what_computes_nothing_imports_nothing_that_computes(folder):
    helped = [["--help"], *([*command, "--help"] for command in every_command())]
    lines = [(0, line) for line in (*helped, *command_lines(DESCRIBING))] + [(2, line) for line in command_lines(BAD)]
    done = subprocess.run(
        [sys.executable, "-c", RUNNING], input=json.dumps([HEAVY, lines]), capture_output=True, text=True, cwd=folder
    )
    assert (done.returncode, done.stdout) == (0, f"{len(lines)}\n"), done.stderr.strip().splitlines()[-1]
