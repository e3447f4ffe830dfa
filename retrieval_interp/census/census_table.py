"""What the circuits of many models have in common: a table of all, and sentences in the paper's words (section 8.2)."""

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
    """One row for every model.

    Columns: those of ``Finding``, its statements by name as ``fails`` and ``undecided``; ``least``, the number of
    layers, and so of heads, that information flow takes; ``heads``, how many have paths, those of fixed patterns too,
    ``layers``, in which, and ``paths``, how many; ``joins_first``, whether the lowest of these layers joins the members
    of pairs and does nothing else; ``walks``, whether but for that the query alone fetches, symbol after symbol;
    ``flow_check``, whether information flow allows the circuit; ``canonical_form``, what its paths do, whichever heads
    do it.
    From ``heads`` on they are empty where no circuit was found.
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
                **{"content": finding.content, "divided": finding.divided},
                **{"least": least(preset(finding.preset).task)},
                **(_about(one.circuit, preset(finding.preset).task) if one.circuit else {}),
                **{"evaluations": finding.evaluations, "seconds": finding.seconds},
            }
        )
    columns = [*COLUMNS]
    return pd.DataFrame(rows, columns=columns).astype({"heads": "Int64", "paths": "Int64", "least": "Int64"})


OPEN = ("fails", "undecided")  # how a statement may come out that does not hold
COLUMNS = (
    *("preset", "seed", "solved", "found", "holds", "loss", "unablated", "explains", *OPEN, "content", "divided"),
    *("least", "heads", "layers", "paths"),
    *("joins_first", "walks", "flow_check", "canonical_form", "evaluations", "seconds"),
)


def least(task: Task) -> int:
    """The number of layers that information flow takes until every symbol can be where it is read."""
    until = [layers_until(task.layout, role, part, causal=True) for part, role in task.read_at.items()]
    return max(layers or 0 for layers in until)


def _about(circuit: Circuit, task: Task) -> dict[str, object]:
    explicit = with_fixed_paths(circuit, task.examples(ROLE_EXAMPLES, seed=0).roles)
    done, flow = canonical_form(explicit, task.layout), flow_check(circuit, task)
    fetching = {
        source for stage in done.stages for source, target in stage if (source, target) not in task.layout.joined
    }
    return {
        "heads": len(explicit.useful_heads),
        "layers": " ".join(str(layer) for layer in sorted({head.layer for head in explicit.useful_heads})),
        "paths": len(explicit.paths),
        "joins_first": joins_first(explicit, task.layout),
        "walks": fetching <= {*task.output_roles},
        "flow_check": flow is not None and flow.passed,
        "canonical_form": str(done),
    }


def sentences(rows: pd.DataFrame, left_out: int = 0) -> list[str]:
    """What the table says of the models of each preset, with the paper's word on its three where there is one.

    Args:
        rows: of ``table``.
        left_out: how many models of the sweep kept no weights, so that they are not in it.
    """
    said = [f"{left_out} runs of this store kept no weights, and were not examined."] if left_out else []
    for name, own in rows.groupby("preset", sort=False):
        circuits = own[own["found"]]
        said.append(
            f"{name}: {_share(own['solved'])} models solve their task. Discovery found a circuit for {len(circuits)} "
            f"of these. {_share(circuits['explains'])} have a loss of at most twice the unablated loss plus 0.005, and "
            f"{_share(circuits['holds'])} hold on fresh examples."
        )
        if not len(circuits):
            continue
        came = {
            how: ", ".join(f"{name} {n}" for name in STATEMENTS if (n := _times(name, circuits[how]))) for how in OPEN
        }
        fewest = circuits["least"].iloc[0]
        counted, looking = (
            ", ".join(f"{number} in {n}" for number, n in sorted(Counter(circuits[column]).items()))
            for column in ("heads", "content")
        )
        kinds = Counter(circuits["canonical_form"])
        (most_frequent, times), *_ = kinds.most_common()
        of_circuit = f"{len(kinds)} canonical form{'s' if len(kinds) > 1 else ''}"
        said += [
            f"{name}: statements that fail, with the number of circuits: {came['fails'] or 'none'}; undecided: "
            f"{came['undecided'] or 'none'}.",
            f"{name}: content heads: {looking}. {int(circuits['divided'].sum())} of {int(circuits['content'].sum())} "
            f"follow some slots only; in {_share(circuits['divided'] > 0)} at least one does.",
            f"{name}: useful heads: {counted}. {_share(circuits['heads'] == fewest)} use the minimum that information "
            f"flow allows, {fewest} (the paper: none of three).",
            f"{name}: the first useful layer only joins the members of pairs in {_share(circuits['joins_first'])} "
            "(the paper: in all three).",
            f"{name}: in {_share(circuits['walks'])} only the query fetches, symbol after symbol. In the others pairs "
            f"attend to other pairs too. {_share(circuits['flow_check'])} pass the flow check.",
            f"{name}: {of_circuit}; the most frequent, in {times}: {most_frequent}.",
        ]
    return said


def _times(name: str, statements: pd.Series) -> int:
    """How often a statement is among those that a column names."""
    return sum(name in own.split("; ") for own in statements)


def _share(true: pd.Series) -> str:
    """``3 of 4 [0.30, 0.95]``, with Wilson's interval."""
    if not len(true):
        return "0 of 0"
    number = int(true.sum())
    share = Interval.of_share(number, len(true))
    return f"{number} of {len(true)} [{share.low:.2f}, {share.high:.2f}]"
