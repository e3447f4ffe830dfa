"""The commands that write prompts and test language models on them."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import Interrupted, Json, usable_seed
from retrieval_interp.cli.terminal import print_accuracy, print_json, records

app = typer.Typer()
Chains = Annotated[int, typer.Option(help="Number of chains in every question.")]
Seed = Annotated[int, typer.Option(callback=usable_seed, help="Seed of the questions.")]


@app.command()
def prompts(
    formulation: Annotated[
        str, typer.Argument(help="One of equations, lives_with, kingdoms, functions and relatives.")
    ],
    n: Annotated[int, typer.Option("--n", min=1, help="Number of questions.")] = 500,
    steps: Annotated[
        int | None, typer.Option(help="Number of steps D, for equations and lives_with (default: 5).")
    ] = None,
    chains: Chains = 4,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="JSONL file to write, one question per line.")] = None,
    as_json: Json = False,
) -> None:
    """Write questions in words (section 4, appendix A), and show one of them."""
    from circuits.utils.files import check_writable, write_atomically
    from retrieval_interp import prompts as room

    if out is not None:
        check_writable(out)
    kind = room.formulation(formulation, steps, chains)
    questions = kind.questions(n, seed)
    if out is not None:
        write_atomically(out, "".join(json.dumps(question.to_json()) + "\n" for question in questions))
    if as_json:
        print(json.dumps([question.to_json() for question in questions], indent=2))
        return
    shown = questions[0]
    typer.echo(f"{shown.prompt}\nCorrect: {shown.answer}\nAcceptable: {', '.join(shown.acceptable)}")
    if out is not None:
        typer.echo(f"\nThis one and {n - 1} more are in {out}", err=True)


def _range(text: str) -> list[int]:
    """Parse ``1-10``, ``3``, or several of these with commas."""
    from retrieval_interp.prompts.chains import MOST_STEPS

    found: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            low, high = int(first), int(last or first)
            if not 1 <= low <= high <= MOST_STEPS:
                raise ValueError(part)
            found += range(low, high + 1)
    except ValueError as error:
        raise BadInput(f"steps {text!r}; expected numbers from 1 to {MOST_STEPS}, such as 1-10 or 1,3,5") from error
    return list(dict.fromkeys(found))


@app.command()
def ask(
    model: Annotated[
        list[str] | None,
        typer.Option(help="Model, as Inspect names it: openai/gpt-4o, hf/gpt2, hooked/MODEL_DIR. Repeatable."),
    ] = None,
    formulations: Annotated[str, typer.Option(help="Formulations, separated by commas, or all.")] = "all",
    steps: Annotated[
        str, typer.Option(help="Numbers of steps D of the equations, such as 1-10 or 1,3,5; lives_with has 5.")
    ] = "1-10",
    samples: Annotated[
        int, typer.Option(min=1, help="Number of questions for each formulation and each number of steps.")
    ] = 500,
    chains: Chains = 4,
    seed: Seed = 0,
    attempts: Annotated[
        int, typer.Option(min=1, help="Maximum number of attempts at one question until its answer is acceptable.")
    ] = 10,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum number of tokens of one answer; reasoning models need many.")
    ] = 32,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Sampling temperature (default: the model's own).")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for logs, accuracy.csv and the page; unfinished work in it is continued.")
    ] = Path("reports/llm"),
    from_logs: Annotated[
        Path | None, typer.Option(help="Folder of Inspect logs to read instead of asking a model.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the accuracy of language models on the questions, with Inspect (figure 2)."""
    if from_logs is None and not model:
        raise BadInput("name a model with --model, such as openai/gpt-4o or hooked/equations, or give --from-logs")
    if from_logs is not None and model:
        raise BadInput("--from-logs asks no model; leave --model out")
    from circuits.utils.files import check_writable
    from retrieval_interp.llm.page import FILES, write_accuracy
    from retrieval_interp.llm.results import logs_in, results
    from retrieval_interp.models.provenance import versions
    from retrieval_interp.prompts import FORMULATIONS

    for name in FILES:
        check_writable(out / name)
    missing = None
    if from_logs is not None:
        logs = logs_in(from_logs)
    else:
        from retrieval_interp.llm.run import ask as ask_models
        from retrieval_interp.llm.run import chosen, set_damaged_aside

        names = list(FORMULATIONS) if formulations == "all" else formulations.replace(" ", "").split(",")
        tasks = chosen(names, _range(steps), samples, chains, seed, attempts)
        for path in set_damaged_aside(out / "logs"):
            typer.echo(f"{path}: cannot be read, and was set aside", err=True)
        models = list(dict.fromkeys(model or []))
        try:
            done = ask_models(
                tasks, models, out / "logs", quiet=as_json, max_tokens=max_tokens, temperature=temperature
            )
        except KeyboardInterrupt:
            raise Interrupted("interrupted; finished answers are kept, and the same command continues") from None
        logs, missing = list(done.logs), done.missing
    table = results(logs, lambda line: typer.echo(line, err=True))
    options: list[tuple[str, object]] = [("from-logs", from_logs)]
    if from_logs is None:
        options = [("model", name) for name in model or []]
        options += [("formulations", formulations), ("steps", steps), ("samples", samples), ("chains", chains)]
        options += [("seed", seed), ("attempts", attempts), ("max-tokens", max_tokens)]
        options += [("temperature", f"{temperature:g}")] if temperature is not None else []
    command = shlex.join(["retrieval-interp", "llm", "ask", *(text for n, v in options for text in (f"--{n}", str(v)))])
    page = write_accuracy(table, out, command)
    if as_json:
        print_json(command, versions(), rows=records(table))
    else:
        print_accuracy(table)
        typer.echo(f"The page is at {page}")
    if missing:
        raise BadInput(f"{missing}; finished answers are kept, and the same command continues")
