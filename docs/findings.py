"""Write findings.md from findings.md.jinja: ``python -m docs.findings``. Its numbers are read here, from files."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

import jinja2
import pandas as pd

from circuits import load_circuit
from circuits.figures.diagram import state_of
from circuits.report.report import Report
from circuits.report.strip import MARKS, strip
from retrieval_interp import preset, read_runs
from retrieval_interp.models.library import data_folder
from retrieval_interp.models.model_dir import read_config
from retrieval_interp.results import Interval
from retrieval_interp.theory.depth import bound_paper, layers_by_position, layers_causal, layers_full

WIDTH = 128
HERE = Path(__file__).parent
DATA, STUDIES, PAGE = data_folder(), HERE.parent / "studies", HERE / "findings.md"
MODELS = {
    "transformer_a": "A", "transformer_b": "B", "transformer_c": "C", "transformer_d": "D (the paper's recipe)",
    "paper/paper_abc_seed_1": "A's shape, the paper's recipe, seed 1",
    "paper/figure4_ic_4_seed_0": "figure 4, four layers", "paper/figure4_ic_5_seed_0": "figure 4, five layers",
    "paper/figure4_ic_6_seed_0": "figure 4, six layers",
    "no_mlp": "`no_mlp`", "one_layer": "`one_layer`", "induction": "`induction`", "conditional": "`conditional`",
    "equations": "`equations`",
}  # fmt: skip
MORE = {-2: "two or three too few", -1: "one too few", 0: "just enough", 1: "one more", 2: "two or more"}
PROPERTIES = ("joins_first", "joins_by_position", "walks", "doubles", "divides", "eliminates")
SWEEPS = {"literal": "figure4_paper", "small": "figure4_laptop"}


def csv(path: str) -> pd.DataFrame:
    """Read a table of a study."""
    return pd.read_csv(STUDIES / path, comment="#")


def models() -> Iterator[dict[str, Any]]:
    """Yield a row for each transformer with a circuit: its losses, its heads, and the marks of its statements."""
    for folder, name in MODELS.items():
        report, circuit = Report.read(DATA / folder), load_circuit(DATA / folder / "circuit.yaml")
        config = read_config(DATA / folder)["made"]["exported"]
        kinds = Counter(map(state_of, circuit.heads.values()))
        counted = {"paths": kinds.pop("paths", 0), "idle": kinds.pop("idle", 0), "fixed": sum(kinds.values())}
        facts = [fact for fact in strip(report) if fact.kind != "number"][1 : 1 + len(report.statements)]
        yield {
            "name": name,
            "loss": config[f"loss_{config['precision']}"]["mean"],
            "replaced": report.combined.loss.mean,
            "letter": f"{report.paper.combined.loss.mean:.3f}, {report.paper.decision}" if report.paper else "",
            "mean": report.faithfulness.ablations["mean"].loss.mean if report.faithfulness else None,
            **counted,
            "marks": " ".join(MARKS[fact.kind] for fact in facts),
            "statements": [one.name for one in report.statements],
            "decision": report.decision,
        }


def looking(folder: str) -> int:
    """Return the number of heads that a circuit of a language model leaves intact or gives a path."""
    return len(load_circuit(DATA / folder / "circuit.yaml").looking)


def ladder() -> dict[str, str]:
    """Return the shares of right answers on some rungs of the ladder, and the range of those of figure 2."""
    table = csv("ladder/table.csv").set_index(["rung", "chains", "steps", "shots"])
    rungs = {"repeated": "a list of names is repeated", "beside": "a fact is begun: name city"}
    rungs |= {"lives": "a fact is begun"}
    shares = {name: f"{table.loc[(rung, 4, 1, 0), 'right']:.2f}" for name, rung in rungs.items()}
    asked = pd.read_csv(DATA / "language_models/smollm2_forced_choice.csv", comment="#")
    of_four = asked[asked["chance"].eq(0.25)]["accuracy"]
    return shares | {"least": f"{of_four.min():.2f}", "most": f"{of_four.max():.2f}", "n": str(asked["asked"].min())}


def partial_losses() -> Iterator[dict[str, Any]]:
    """Yield the loss of every symbol of every run of figure 4, and how many layers it has more than the exact bound."""
    table = csv("paper/table.csv")
    long = (
        table[table["ended"]]
        .drop(columns="loss")
        .melt(["preset", "seed"], [f"x{k}_loss" for k in range(1, 6)], "symbol", "loss")
        .dropna()
    )
    runs = {"gpt": long.assign(symbol=long["symbol"].str[:2])}
    runs |= {recipe: read_runs(DATA / "sweeps" / sweep / "runs.csv") for recipe, sweep in SWEEPS.items()}
    for recipe, rows in runs.items():
        for name, symbol, loss in zip(rows["preset"], rows["symbol"], rows["loss"], strict=True):
            if "nonic" not in name and name.startswith(("figure4_ic", "laptop_ic")):
                more = preset(name).architecture.n_layers - layers_causal(int(symbol[1:]))
                yield {"recipe": recipe, "preset": name, "symbol": symbol, "loss": loss, "more": more}


def by_depth() -> pd.DataFrame:
    """Count the symbols below 0.5 and below 0.05, by recipe and by how many layers there are too few or more."""
    rows = pd.DataFrame(partial_losses()).assign(more=lambda rows: rows["more"].clip(-2, 2))
    counted = rows.assign(half=rows["loss"] < 0.5, low=rows["loss"] < 0.05).groupby(["recipe", "more"])
    table = counted.agg(n=("loss", "size"), half=("half", "sum"), low=("low", "sum")).reset_index()
    return table.assign(layers=table["more"].map(MORE))


def census(preset: str = "", table: str = "table") -> dict[str, int]:
    """Count the properties of the circuits of the models of a preset, or of all, that solve their task."""
    rows = csv(f"census/{table}.csv")
    there = rows[rows["preset"].str.fullmatch(preset or ".*") & rows["solved"].eq(True)]
    return {name: int(there[name].eq(True).sum()) for name in ("solved", "found", *PROPERTIES)}


def share(right: float, n: float) -> str:
    """Return ``18 of 18 [0.82, 1.00]``."""
    interval = Interval.of_share(int(right), int(n))
    return f"{int(right)} of {int(n)} [{interval.low:.2f}, {interval.high:.2f}]"


def depths() -> list[tuple[str, list[str]]]:
    """Return the rows of the table of depth in theory."""
    hops = (1, 2, 3, 4, 5, 8, 16, 10**6)
    return [
        ("D", [f"{n:,}" for n in hops]),
        ("the paper's bound, log3(2D)", [f"{bound_paper(n):.2f}" for n in hops]),
        ("exact, without a mask", [str(layers_full(n)) for n in hops]),
        ("exact, with the causal mask", [str(layers_causal(n)) for n in hops]),
        ("the same, pairs fetched by position", [str(layers_by_position(n)) for n in hops]),
    ]


def page() -> str:
    """Return the page, its paragraphs filled."""
    loader = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    loader.tests |= {"holds": lambda text: text.endswith("holds"), "solves": lambda marks: marks[0] == MARKS["holds"]}
    names = {one.__name__: one for one in (csv, models, looking, ladder, by_depth, census, share, depths)}
    read = {
        "verdicts": pd.read_json(DATA / "verdicts.json", typ="series"),
        "report": lambda name: Report.read(DATA / name),
    }
    blocks = loader.get_template("findings.md.jinja").render(names | read).split("\n\n")
    return (
        "\n\n".join(
            block if block[0] in "|#!-" else fill(block, WIDTH, break_on_hyphens=False, break_long_words=False)
            for block in blocks
        )
        + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
