"""Find the circuit of every model in a folder of runs, and count what the circuits have in common.

    python studies/census/run.py FOLDER [--threshold 0.05] [--out TABLE]

FOLDER is searched for model directories, at any depth. The finding of a model goes beside it, into ``census.json`` and
``circuit.yaml``, and is not made again; several processes can share the work. README.md has the question and the rule,
docs/protocol.md the rule for the models of the paper's recipe (data/paper).
"""

import argparse
import json
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from canonical_form import canonical_form, joins_first
from scipy.stats import fisher_exact

import circuits
from circuits import Circuit, Mechanism, OneHot, Roles, load_circuit, save_circuit
from circuits.errors import Unsolved
from circuits.flow.fixed_paths import fixed_paths, with_fixed_paths
from circuits.flow.flow_check import ROLE_EXAMPLES, flow_check
from circuits.mechanisms.one_hot import POSITION
from circuits.utils.files import write_atomically
from retrieval_interp import load
from retrieval_interp.locks import LOCKS, claimed
from retrieval_interp.models.library import own_task
from retrieval_interp.models.model_dir import CIRCUIT, CONFIG, WEIGHTS, read_config
from retrieval_interp.models.provenance import metadata
from retrieval_interp.results import Interval
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.task import TrainableTask
from retrieval_interp.theory.information_flow import layers_until

FINDING = "census.json"
SELECT_ON, JUDGE_ON = 0, 1  # seeds of the examples for discovery and for validation, as in ``discover``
EXAMPLES, MOST = 1024, 16 * 1024  # examples for validation; at most MOST, where a decision is close
RULE, EXCEPTION = 0.9, 0.1  # shares of the solved models that make a property a rule, and an exception
PROPERTIES = {  # of a circuit, by the column that says so; ``count`` adds the decisions of validation
    "explains": "the circuit explains the model",
    "joins_first": "its first layer with paths only joins the members of pairs",
    "joins_by_position": "that layer joins them by position",
    "walks": "only the query fetches, one symbol after another",
    "doubles": "a pair takes from another pair",
    "divides": "some content head has paths on some slots only",
    "defaults": "some head with paths looks at a fixed position on other slots",
    "eliminates": "the paths bring some symbol on some slots only",
    "fewest": "it has the fewest heads that information flow allows",
}
JUDGED = ("faithful", "complete", "minimal", "holds")
SOLVED = 0.05  # a model whose loss is not below it does not solve its task
OURS = ("divides", "defaults", "eliminates", "walks", "doubles", "joins_by_position")  # of the protocol


@dataclass(frozen=True)
class FirstThree(RetrievalTask):
    """A retrieval problem of which x1 to x3 are looked at; the model also answers what comes after them."""

    @property
    def _asked_steps(self) -> list[int]:
        return super()._asked_steps[:3]

    def answers(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the answers that are looked at."""
        return super().answers(outputs[..., : self.d_output])


def looked_at(task: TrainableTask, preset: str) -> TrainableTask:
    """Return the task that a model is held against: of figure 4, that of x1 to x3."""
    if not preset.startswith("figure4_ic"):
        return task
    return FirstThree(**{field.name: getattr(task, field.name) for field in fields(task)})


def models(folder: Path) -> list[Path]:
    """Return the model directories in a folder that have weights, or that have been examined."""
    found = sorted(path.parent for path in folder.rglob(CONFIG) if not any(p[0] == "." for p in path.parts[1:]))
    return [own for own in found if (own / WEIGHTS).exists() or (own / FINDING).exists()]


def examine(folder: Path, threshold: float) -> None:
    """Find the circuit of one model, validate it on fresh examples, and write both files."""
    started = time.perf_counter()
    model, task, _ = load(folder)
    task = looked_at(task, read_config(folder)["made"]["preset"])
    finding: dict[str, Any] = {"threshold": threshold, "solved": True, "found": False}
    finding["metadata"] = metadata(folder.name, model)
    examples = task.examples(EXAMPLES, JUDGE_ON)
    with torch.no_grad():
        loss = task.losses(model(examples.inputs), examples).mean().item()
    try:
        if loss >= SOLVED:
            raise Unsolved(f"the loss is {loss}")
        found = circuits.discover(model, task, seed=SELECT_ON, threshold=threshold)
    except Unsolved:
        write_atomically(folder / FINDING, json.dumps({**finding, "solved": False}) + "\n")
        return
    settings, n = {"seed": JUDGE_ON, "threshold": threshold}, EXAMPLES
    report = circuits.validate(model, task, found.circuit, n_examples=n, **settings)
    while report.more_examples_could_decide and n < MOST:
        n *= 4
        report = circuits.validate(model, task, found.circuit, n_examples=n, **settings)
    roles = task.examples(ROLE_EXAMPLES, SELECT_ON).roles
    content = [found.circuit.heads[head] for head in found.content_or_position.content]
    finding |= {
        "found": found.found,
        "holds": found.found and report.decision == "holds",
        "statements": {one.name: one.decision for one in report.statements} if found.found else {},
        "loss": report.combined.loss.mean,
        "unablated": report.scale.own.mean,
        "explains": report.statements[0].decision == "holds",  # solves
        "content": len(content),
        "divided": sum(_is_divided(own, roles) for own in content),
        "evaluations": found.n_evaluations,
    }
    if found.found:
        save_circuit(found.circuit, folder / CIRCUIT)
    finding["seconds"] = round(time.perf_counter() - started, 1)
    write_atomically(folder / FINDING, json.dumps(finding) + "\n")


def _is_divided(mechanism: Mechanism, roles: Roles) -> bool:
    """Whether a role has paths on some instances only."""
    there: dict[str, torch.Tensor] = {}
    for source, target in mechanism.paths:
        holds = mechanism.holds(source, target, roles)
        there[source] = there.get(source, torch.zeros_like(holds)) | holds
    return not all(bool(own.all()) for own in there.values())


def described(circuit: Circuit, task: TrainableTask) -> dict[str, Any]:
    """Return the columns of the table that describe a circuit; paths of fixed patterns count."""
    roles, joined = task.examples(ROLE_EXAMPLES, SELECT_ON).roles, task.layout.joined
    explicit, flow = with_fixed_paths(circuit, fixed_paths(circuit, roles)), flow_check(circuit, task)
    ends = [pair for stage in canonical_form(explicit, task.layout).stages for pair in stage]
    fetching = {source for source, target in ends if (source, target) not in joined}
    lowest = explicit.heads_with_paths[0].layer
    joining = [path.head for path in explicit.paths if path.head.layer == lowest]
    first = joins_first(explicit, task.layout)
    content = [own for own in circuit.heads.values() if isinstance(own, OneHot) and own.paths]
    needed = [layers_until(task.layout, role, symbol, causal=True) for symbol, role in task.read_at.items()]
    return {
        "least": max(layers or 0 for layers in needed),
        "heads": len(explicit.heads_with_paths),
        "layers": " ".join(str(layer) for layer in sorted({head.layer for head in explicit.heads_with_paths})),
        "paths": len(explicit.paths),
        "joins_first": first,
        "joins_by_position": first and not any(isinstance(circuit.heads[head], OneHot) for head in joining),
        "walks": fetching <= {*task.output_roles},
        "doubles": bool(fetching - {*task.output_roles}),
        "defaults": any(POSITION.fullmatch(target) for own in content for _, target in own.rows),
        "eliminates": any(0 < share < 1 for share in flow.known_in.values()),
        "flow_check": flow.verdict.decision == "holds",
        "canonical_form": str(canonical_form(explicit, task.layout)),
    }


def table(folder: Path) -> pd.DataFrame:
    """Return one row for every model that was examined."""
    rows = []
    for own in models(folder):
        if not (own / FINDING).exists():
            continue
        finding, made = json.loads((own / FINDING).read_text()), read_config(own)["made"]
        statements = finding.pop("statements", {})
        row = {"preset": made["preset"], "seed": made["seed"], **finding, **statements}
        for how in ("fails", "undecided"):
            row[how] = "; ".join(name for name, decision in statements.items() if decision == how)
        if finding["found"]:
            row |= described(load_circuit(own / CIRCUIT), looked_at(own_task(own), made["preset"]))
            row |= {"divides": finding["divided"] > 0, "fewest": row["heads"] == row["least"]}
            open_or_not = "undecided" if row["undecided"] else "holds"
            row["holds"] = "fails" if row["fails"] or not finding["holds"] else open_or_not
        rows.append({name: value for name, value in row.items() if name not in ("metadata", "circuit_sha256")})
    return pd.DataFrame(rows).convert_dtypes()


def count(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for every preset and property: how many of the models that solve their task have it.

    Models without a circuit do not have it. Undecided models do not have it, and are listed by their seeds; the verdict
    is undecided if they could change it.
    """
    counted = []
    for (preset, solved), own in rows.groupby(["preset", "solved"], sort=False):
        for column in (*PROPERTIES, *JUDGED) if solved else ():
            said = own[column] if column in own else pd.Series(pd.NA, own.index)
            said = said.map({True: "holds", False: "fails"}) if column in PROPERTIES else said
            said = said.where(own["found"], "fails").fillna("undecided")
            n, unknown = int((said == "holds").sum()), own["seed"][said == "undecided"]
            share, most = Interval.of_share(n, len(own)), (n + len(unknown)) / len(own)
            row = {"preset": preset, "property": PROPERTIES.get(column, column), "have_it": n, "solved": len(own)}
            row |= {"low": share.low, "high": share.high, "undecided": " ".join(map(str, unknown))}
            row["verdict"] = verdict(share.mean) if verdict(share.mean) == verdict(most) else "undecided"
            counted.append(row)
    return pd.DataFrame(counted)


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Return in how many models that solve their task each of our own findings is there, beside ``medium``."""
    known, counted = pd.read_csv(Path(__file__).parent / "table.csv"), []
    both = [one[one["solved"].eq(True)] for one in (rows, known[known["preset"].eq("medium")])]
    for column in OURS:
        have = [int((one[column].eq(True) & one["found"].eq(True)).sum()) for one in both]
        p = fisher_exact([[n, len(one) - n] for n, one in zip(have, both, strict=True)]).pvalue
        said = [f"{n} of {len(one)}" for n, one in zip(have, both, strict=True)]
        counted.append({"finding": PROPERTIES[column], "here": said[0], "medium": said[1], "p": p})
    return pd.DataFrame(counted)


def verdict(share: float) -> str:
    """Return what a share of the models that solve their task makes of a property."""
    return "rule" if share >= RULE else "exception" if share <= EXCEPTION else "luck"


def main() -> None:
    """Examine all models of a folder, write the table, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder of runs, such as that of a sweep")
    parser.add_argument("--threshold", type=float, default=0.05, help="a loss below it counts as low")
    parser.add_argument("--out", type=Path, default=Path("table.csv"), help="the table to write")
    arguments = parser.parse_args()
    for own in models(arguments.folder):
        with claimed(arguments.folder / LOCKS / "-".join(own.relative_to(arguments.folder).parts)) as mine:
            if mine and not (own / FINDING).exists():
                print(own, flush=True)
                examine(own, arguments.threshold)
    rows = table(arguments.folder)
    rows.to_csv(arguments.out, index=False)
    if not rows["found"].any():
        print("no circuit was found")
        return
    print(count(rows).to_string(index=False, float_format="{:.2f}".format))
    print(compared(rows).to_string(index=False, float_format="{:.2f}".format))
    print(rows.groupby(["preset", "canonical_form"]).size().sort_values(ascending=False).to_string())


if __name__ == "__main__":
    main()
