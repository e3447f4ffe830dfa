"""The circuits of many models compared: a table, and sentences beside those of the paper (section 8.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from circuits.checks.statements import STATEMENTS
from circuits.circuit import Circuit
from circuits.flow.canonical_form import canonical_form, joins_first
from circuits.flow.fixed_paths import with_fixed_paths
from circuits.flow.flow_check import ROLE_EXAMPLES, flow_check
from circuits.losses.interval import Interval
from circuits.utils.lazy import pandas as pd
from retrieval_interp.census.census import Examined
from retrieval_interp.models.presets import preset
from retrieval_interp.tasks.task import Task
from retrieval_interp.theory.information_flow import layers_until


def table(examined: Sequence[Examined]) -> pd.DataFrame:
    """Return a table with one row for every model.

    Columns:
        those of ``Finding``, with the names of the statements that fail in ``fails`` and of the undecided ones in
        ``undecided``;
        ``least``: the least number of layers, and so of heads, that information flow allows;
        ``heads``, ``layers``, ``paths``: the number of heads with paths, their layers, and the number of paths; paths
        of fixed patterns count;
        ``joins_first``: whether all paths of the lowest of these layers join the members of pairs;
        ``walks``: whether, apart from joining pairs, only the query fetches symbols, one after another;
        ``flow_check``: whether the circuit passes the flow check;
        ``canonical_form``: the canonical form.
    From ``heads`` to ``canonical_form`` the columns are empty if no circuit was found.
    """
    rows = []
    for one in examined:
        finding = one.finding
        rows.append(
            {
                **{"preset": finding.preset, "seed": finding.seed, "solved": finding.solved, "found": finding.found},
                **{
                    "holds": finding.holds,
                    "loss": finding.loss,
                    "unablated": finding.unablated,
                    "explains": finding.explains,
                },
                **{how: "; ".join(name for name, own in finding.statements.items() if own == how) for how in OPEN},
                **{name: getattr(finding, name) for name in ("content", "divided", *UNIQUE)},
                **{"least": least(preset(finding.preset).task)},
                **(_circuit_columns(one.circuit, preset(finding.preset).task) if one.circuit else {}),
                **{"evaluations": finding.evaluations, "seconds": finding.seconds},
            }
        )
    whole = dict.fromkeys(("heads", "paths", "least", "equivalents", "shared"), "Int64")
    return pd.DataFrame(rows, columns=[*COLUMNS]).astype(whole)


UNIQUE = ("only_one", "equivalents", "shared")  # columns that the censuses of older versions leave empty
OPEN = ("fails", "undecided")  # the decisions other than ``holds``
COLUMNS = (
    *("preset", "seed", "solved", "found", "holds", "loss", "unablated", "explains", *OPEN, "content", "divided"),
    *(*UNIQUE, "least", "heads", "layers", "paths"),
    *("joins_first", "walks", "flow_check", "canonical_form", "evaluations", "seconds"),
)


def least(task: Task) -> int:
    """Return the least number of layers after which, by information flow, every symbol can be where it is read."""
    until = [layers_until(task.layout, role, part, causal=True) for part, role in task.read_at.items()]
    return max(layers or 0 for layers in until)


def _circuit_columns(circuit: Circuit, task: Task) -> dict[str, object]:
    """Return the columns of the table that describe a circuit."""
    explicit = with_fixed_paths(circuit, task.examples(ROLE_EXAMPLES, seed=0).roles)
    form, flow = canonical_form(explicit, task.layout), flow_check(circuit, task)
    fetching = {
        source for stage in form.stages for source, target in stage if (source, target) not in task.layout.joined
    }
    return {
        "heads": len(explicit.useful_heads),
        "layers": " ".join(str(layer) for layer in sorted({head.layer for head in explicit.useful_heads})),
        "paths": len(explicit.paths),
        "joins_first": joins_first(explicit, task.layout),
        "walks": fetching <= {*task.output_roles},
        "flow_check": flow is not None and flow.passed,
        "canonical_form": str(form),
    }


def sentences(rows: pd.DataFrame, left_out: int = 0) -> list[str]:
    """Return sentences on the models of each preset, with the paper's finding on its three models in parentheses.

    Args:
        rows: the rows of ``table``.
        left_out: the number of models that are not in the table because they have no weights.
    """
    lines = [f"{left_out} runs of this store have no weights and were not examined."] if left_out else []
    for name, own in rows.groupby("preset", sort=False):
        circuits = own[own["found"]]
        lines.append(
            f"{name}: {_share(own['solved'])} models solve their task. Discovery found a circuit for {len(circuits)} "
            f"of these. {_share(circuits['explains'])} have a loss of at most twice the unablated "
            "loss plus a tenth of the threshold, and "
            f"{_share(circuits['holds'])} hold on fresh examples."
        )
        if not len(circuits):
            continue
        counts = {
            how: ", ".join(f"{name} {n}" for name in STATEMENTS if (n := _times(name, circuits[how]))) for how in OPEN
        }
        fewest = circuits["least"].iloc[0]
        heads, content = (
            ", ".join(f"{number} in {n}" for number, n in sorted(Counter(circuits[column]).items()))
            for column in ("heads", "content")
        )
        kinds = Counter(circuits["canonical_form"])
        (most_frequent, times), *_ = kinds.most_common()
        forms = f"{len(kinds)} canonical form{'s' if len(kinds) > 1 else ''}"
        lines += [
            f"{name}: statements that fail, with the number of circuits: {counts['fails'] or 'none'}; undecided: "
            f"{counts['undecided'] or 'none'}.",
            f"{name}: content heads: {content}. {int(circuits['divided'].sum())} of {int(circuits['content'].sum())} "
            f"have paths on some slots only. {_share(circuits['divided'] > 0)} circuits have at least one such head.",
            f"{name}: useful heads: {heads}. {_share(circuits['heads'] == fewest)} circuits have the least number that "
            f"information flow allows, {fewest} (the paper: 0 of 3).",
            f"{name}: in {_share(circuits['joins_first'])} circuits the first useful layer only joins the members of "
            "pairs (the paper: 3 of 3).",
            f"{name}: in {_share(circuits['walks'])} circuits only the query fetches symbols, one after another. In "
            f"the others, pairs also attend to other pairs. {_share(circuits['flow_check'])} pass the flow check.",
            f"{name}: {forms}; the most frequent, in {times} circuits: {most_frequent}.",
        ]
        searched = circuits[circuits["only_one"].notna()]
        if len(searched):
            said = Counter(searched["only_one"])
            several = searched[searched["equivalents"] > 1]
            nothing = int((several["shared"] == 0).sum())
            line = (
                f"{name}: of {len(searched)} circuits, {said['holds']} are the only one, {said['fails']} are not, and "
            )
            line += f"{said['undecided']} are undecided."
            if len(several):
                line += (
                    f" Several were found for {len(several)} models, up to {searched['equivalents'].max()} for one; "
                )
                line += f"for {nothing} of these no path is in all of them."
            lines.append(line)
    return lines


def _times(name: str, statements: pd.Series) -> int:
    """Return the number of rows of a column that name a statement."""
    return sum(name in own.split("; ") for own in statements)


def _share(true: pd.Series) -> str:
    """Return a text such as ``3 of 4 [0.30, 0.95]``, with Wilson's interval."""
    if not len(true):
        return "0 of 0"
    number = int(true.sum())
    share = Interval.of_share(number, len(true))
    return f"{number} of {len(true)} [{share.low:.2f}, {share.high:.2f}]"
