"""The commands that write prompts and test language models on them."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import Interrupted, Json, runs_model, usable_seed
from retrieval_interp.cli.terminal import print_json, records

app = typer.Typer()
Chains = Annotated[int, typer.Option(help="Number of chains in every question.")]
Seed = Annotated[int, typer.Option(callback=usable_seed, help="Seed of the questions.")]


@app.command(epilog="Example: retrieval-interp llm prompts equations --n 500 --steps 5 --json")
def prompts(
    formulation: Annotated[str, typer.Argument(help="equations, lives_with, kingdoms, functions or relatives.")],
    n: Annotated[int, typer.Option("--n", min=1, help="Number of questions.")] = 500,
    steps: Annotated[int | None, typer.Option(help="D, for equations and lives_with (default: 5).")] = None,
    chains: Chains = 4,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Write questions in words (section 4, appendix A): one of them, or with --json all."""
    from retrieval_interp import prompts as formulations

    questions = formulations.formulation(formulation, steps, chains).questions(n, seed)
    shown = questions[0]
    if as_json:
        print(json.dumps([question.to_json() for question in questions], indent=2))
    else:
        typer.echo(f"{shown.prompt}\nCorrect: {shown.answer}\nAcceptable: {', '.join(shown.acceptable)}")


def _range(text: str) -> list[int]:
    """Parse ``1-10``, ``3``, or several of these with commas."""
    from retrieval_interp.prompts.chains import MOST_STEPS

    steps: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = (int(end) if end.isdecimal() else 0 for end in (first, last or first))
        if not 1 <= low <= high <= MOST_STEPS:
            raise BadInput(f"steps {text!r}; expected numbers from 1 to {MOST_STEPS}, such as 1-10 or 1,3,5")
        steps += range(low, high + 1)
    return list(dict.fromkeys(steps))


@app.command(epilog="Example: retrieval-interp llm ask --model openai/gpt-4o --steps 1-10")
@runs_model
def ask(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Model, as Inspect names it: openai/gpt-4o, hf/gpt2, hooked/MODEL_DIR; or smollm2. Repeatable."
        ),
    ] = None,
    formulations: Annotated[str, typer.Option(help="Formulations, separated by commas, or all.")] = "all",
    steps: Annotated[str | None, typer.Option(help="D: 1-10 or 1,3,5 (default: 1-10, of lives_with 5).")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Number of questions for each formulation and D.")] = 500,
    chains: Chains = 4,
    seed: Seed = 0,
    attempts: Annotated[int, typer.Option(min=1, help="Most attempts until an answer is acceptable.")] = 10,
    forced_choice: Annotated[
        bool, typer.Option("--forced-choice", help="The acceptable answer that a hooked/ model finds most likely.")
    ] = False,
    shots: Annotated[int, typer.Option(min=0, max=100, help="Other questions with answers, before each.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer; reasoning needs many.")] = 32,
    temperature: Annotated[float | None, typer.Option(min=0, help="Temperature (default: the model's own).")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for logs, accuracy.csv and the page; unfinished work in it is continued.")
    ] = Path("reports/llm"),
    from_logs: Annotated[Path | None, typer.Option(help="Inspect's logs to read instead of asking a model.")] = None,
    as_json: Json = False,
) -> None:
    """Measure the accuracy of language models on the questions, with Inspect (figure 2)."""
    if (from_logs is None) == (not model):
        raise BadInput("name models with --model, such as openai/gpt-4o or hooked/equations, or give --from-logs alone")
    from circuits.utils.files import check_writable
    from retrieval_interp.llm.page import OPTIONS, write_accuracy
    from retrieval_interp.llm.results import logs_in, results
    from retrieval_interp.models.provenance import versions
    from retrieval_interp.prompts import FORMULATIONS

    check_writable(out / "accuracy.html")
    if from_logs is not None:
        logs, options, missing = logs_in(from_logs), [("from-logs", str(from_logs))], None
    else:
        from retrieval_interp.llm import run

        names = list(FORMULATIONS) if formulations == "all" else formulations.replace(" ", "").split(",")
        size = {"samples": samples, "chains": chains, "seed": seed, "attempts": attempts, "shots": shots}
        tasks = run.chosen(names, None if steps is None else _range(steps), **size, forced_choice=forced_choice)
        for path in run.set_damaged_aside(out / "logs"):
            typer.echo(f"{path}: cannot be read, and was set aside", err=True)
        models = list(dict.fromkeys(name if "/" in name else f"hooked/{name}" for name in model or []))
        if far := [name for name in models if forced_choice and not name.startswith("hooked/")]:
            raise BadInput(f"--forced-choice reads the probabilities of a model of hooked/; got {far[0]}")
        if forced_choice and temperature is not None:
            raise BadInput("--forced-choice samples nothing; leave out --temperature")
        config = {"max_tokens": max_tokens, "temperature": temperature}
        try:
            logs, missing = run.ask(tasks, models, out / "logs", quiet=as_json, **config)
        except KeyboardInterrupt:
            raise Interrupted("interrupted; finished answers are kept, and the same command continues") from None
        named = {"formulations": formulations, "steps": steps, **size, "max-tokens": max_tokens}
        named["temperature"] = None if temperature is None else f"{temperature:g}"
        given = (("model", one) for one in models)
        options = [*given, *((name, str(one)) for name, one in named.items() if one is not None)]
    table = results(logs, lambda line: typer.echo(line, err=True))
    words = [word for name, value in options for word in (f"--{name}", value)] + ["--forced-choice"] * forced_choice
    command = shlex.join(["retrieval-interp", "llm", "ask", *words])
    page = write_accuracy(table, out, command)
    if as_json:
        print_json(command, versions(), rows=records(table))
    else:
        same = [name for name in OPTIONS if table[name].nunique(dropna=False) == 1]
        typer.echo(table.drop(columns=same).to_string(index=False, na_rep="", float_format="{:.4g}".format))
        typer.echo(f"The page is at {page}")
    if missing:
        raise BadInput(f"{missing}; finished answers are kept, and the same command continues")
