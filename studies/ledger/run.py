"""Hold every quantitative claim of the paper against what was measured here, and write the table.

    python studies/ledger/run.py [--out docs/claims.md]

The measurements are read from files: the runs of the recipe (studies/paper/table.csv and data), and what the recipes
before it showed (earlier.csv). README.md has the question and the rule.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import pandas as pd
from circuit import Circuit
from files import DATA, THRESHOLD, circuits, ended, loss_of, of_shape, symbols_of
from row import Row, listed

from circuits.utils.files import write_atomically
from retrieval_interp import emergence, observations
from retrieval_interp.experiments.emergence import STEPS_PER_EPOCH, circuit_to_follow
from retrieval_interp.sweep.figure4 import FAILED
from retrieval_interp.sweep.run import LEARNED
from retrieval_interp.theory.depth import bound_paper, layers_causal

SOLVED, HEADS = 0.01, 4  # a validation MSE, heads of A to C (section 8.2)
ONE_PATH, FIRST_LAYER = (0.17, 0.89), (0.05, 0.1)  # losses without a path above, or in the first useful layer
MSE, EPOCHS = (0.0155, 0.062), (225, 900)  # of D and its first arrival: the paper's 0.031 and 450 within a factor of 2
FIGURE_4, WITH_CURRICULUM = 64, 41  # runs of figure 4 in the paper, of each kind; of the protocol, those with one
PAGE_HEAD = """# The paper's claims

One row for each claim. *n of N* counts the cases on which its rule was tested, runs or what the rule names, with
Wilson's 95% interval; undecided cases are told, not counted. The verdict is of recipe `gpt` alone
([protocol](protocol.md)): *holds* if all cases meet the rule and are as many as the paper's, *at smaller scale* if
they are fewer, *differs* if one does not, *not measured* if no case decides it. The rules were fixed before the runs of
recipe `gpt`, but for section 4, which needs other models, and where a row says *after the data*. The weights of these
runs are stored in `data/paper` (D, seed 0: `data/transformer_d`), but for those that learn no symbol; losses by layers
are of the last validation. *Before* holds the same rules against two earlier recipes, whose runs were known by then:
`literal`, the paper's without a warm-up ([its protocol](protocol_literal.md)), and `small`, fewer steps with a warm-up
of its own. They were counted at an earlier revision (`studies/ledger/earlier.csv`). `python studies/ledger/run.py`
writes this page from the files; the command of a row makes what it reads.
"""


def short_of_layers(runs: pd.DataFrame, takes: Callable[[int], float]) -> list[tuple[str, float]]:
    """Return every run with fewer layers than some symbol takes, and the lowest loss of such a symbol."""
    found = []
    for _, run in runs.iterrows():
        asked = [name for name in symbols_of(run) if run["layers"] < takes(int(name[1:]))]
        if asked:
            found.append(
                (f"D = {int(run['hops'])}, layers {int(run['layers'])}", min(run[f"{name}_loss"] for name in asked))
            )
    return found


def depth(section: str, claim: str, paper: str, takes: Callable[[int], float], planned: int) -> Row:
    """A bound on layers holds for a run if no symbol that takes more layers is partly learned."""
    tested = short_of_layers(ended(), takes)
    said = "; ".join(f"{size}: lowest loss {loss:.3f}" for size, loss in tested)
    met = [loss >= FAILED for _, loss in tested]
    return Row(section, claim, paper, FIGURE_4, met, said, FOUR, planned - len(met))


def without_curriculum() -> Row:
    """The loss stays high without the curriculum, while the same model learns x1 with it: without this, no case."""
    losses = ended().set_index("run")
    alone = losses[losses["preset"].str.contains("_nonic_") & ~losses.index.str.contains("with_curriculum")]
    controls = [name.replace("_seed_", "_with_curriculum_seed_") for name in alone.index]
    learned = [float(losses["x1_loss"].get(name, math.inf)) < LEARNED for name in controls]
    met = [bool(loss > FAILED) for loss, own in zip(alone["loss"], learned, strict=True) if own]
    ended_too = sum(name in losses.index for name in controls)
    beside = f"x1 learned by {sum(learned)} of {ended_too} controls" if ended_too else "no control has ended"
    told = f"{listed(f'{loss:.3f}' for loss in alone['loss'])}; {beside}"
    claim, paper = "without the implicit curriculum, the loss stays high at every depth", "above 0.7 in 64 of 64"
    return Row("7.2", claim, paper, FIGURE_4, met, told, FOUR, 9 - len(alone))


def later_need_more(means: Sequence[float], layers: Sequence[int | None]) -> bool:
    """Whether the mean loss rises from symbol to symbol, none needs fewer layers, and the last more than the first.

    A symbol that is learned at no depth has no number of layers, and the rule is not met.
    """
    needed = [number for number in layers if number is not None]
    rising = all(a < b for a, b in pairwise(means)) and all(a <= b for a, b in pairwise(needed))
    return rising and len(needed) == len(layers) and needed[0] < needed[-1]


def by_depth(runs: pd.DataFrame) -> tuple[list[float], list[int | None]]:
    """Return for every symbol its loss, averaged over depths, and the fewest layers with a mean below 0.5."""
    columns = [f"{name}_loss" for name in symbols_of(runs.iloc[0])]
    losses = runs.groupby("layers")[columns].mean()  # averaged over seeds
    fewest = [next((int(n) for n, loss in losses[one].items() if loss < LEARNED), None) for one in columns]
    return [*losses.mean()], fewest


def later() -> Row:
    runs = ended()
    runs = runs[runs["preset"].str.contains("_ic_")]
    depths = sorted({*runs["layers"]})
    means, fewest = by_depth(runs)
    shown = listed(f"{mean:.3f}" for mean in means)
    told = f"means of x1 to x5 over depths {listed(depths)}: {shown}; fewest layers below 0.5: {listed(fewest)}"
    met = [later_need_more(means, fewest)] if len(depths) == 8 else []
    claim = "later symbols of a chain need more layers"
    return Row("7.2", claim, "figure 4, right", 1, met, told, FOUR, 24 - len(runs))


def order(fell: Sequence[float | None]) -> str | None:
    """Return the order in which partial losses fell, compared with x1, x2, ...; None if fewer than two fell.

    Args:
        fell: for every symbol in the order of the chain, the step at which its loss fell below 0.5; NaN or None.
    """
    steps = [math.inf if step is None or math.isnan(step) else step for step in fell]
    if sum(step < math.inf for step in steps) < 2:
        return None
    if any(far < near for near, far in pairwise(steps)):
        return "otherwise"
    return "at once" if any(near == far < math.inf for near, far in pairwise(steps)) else "in order"


def falls(runs: pd.DataFrame) -> list[str]:
    """Return the order in each run in which two symbols or more fell."""
    orders = [order([run[f"{name}_falls"] for name in symbols_of(run)]) for _, run in runs.iterrows()]
    return [one for one in orders if one is not None]


def decided(orders: Iterable[str]) -> list[bool]:
    """Return whether symbols fell in order, of each run in which no two fell between the same two records."""
    return [one == "in order" for one in orders if one != "at once"]


def in_order() -> Row:
    runs = ended()
    runs = runs[~runs["preset"].str.contains("_nonic_") | runs["run"].str.contains("with_curriculum")]
    orders = falls(runs)
    at_once = orders.count("at once")
    told = f"of {len(runs)} runs, those in which two or more fell; {at_once or 'no'} with two within 20 steps"
    claim, paper = "partial losses fall below 0.5 in the order of the chain", "64 of 64"
    to_come = WITH_CURRICULUM - len(runs)
    return Row("7.2", claim, paper, FIGURE_4, decided(orders), told, FOUR, to_come)


def section_8() -> list[Row]:
    """The losses are of all runs; the circuits of A to C, the first three that solve the task (docs/protocol.md)."""
    runs, solved = of_shape("paper_abc")
    known, planned = circuits(solved[:3]), 5 - len(runs)
    losses = [loss_of(one)["mean"] for one in runs]

    def apart(some: list[Circuit]) -> list[bool]:
        pairs = [(one.above, other.above) for one, other in combinations(some, 2)]
        return [len(a & b) < min(len(a), len(b)) / 2 for a, b in pairs]

    found = "" if known else f"{len(solved)} of {len(runs)} runs solve the task; "
    one = "A, B and C: "
    rows = [
        Row("8.2", f"{one}validation MSE", "below 0.01", 3, [loss < SOLVED for loss in losses],
            listed(f"{loss:.4f}" for loss in losses), TRAIN, planned),
        Row("8.2", f"{one}heads with a directly needed path", str(HEADS), 3, [own.heads == HEADS for own in known],
            found + listed(own.heads for own in known), DISCOVER, planned),
        Row("8.2", f"{one}the first useful head joins the members of every pair", "3 of 3", 3,
            [own.joins_pairs() for own in known], found + f"{len(known)} circuits", DISCOVER, planned),
        Row("8.2", f"{one}apart from the first head, the circuits are very different", "figure 5", 3, apart(known),
            found + f"{len(known)} circuits", DISCOVER, planned),
    ]  # fmt: skip
    built = json.loads((DATA / "construction.json").read_text())
    told = f"compiled, not trained: {built['heads']} heads, D = {built['hops']}, loss {built['loss']['mean']:.4f}"
    met = [built["loss"]["mean"] < SOLVED] if (built["hops"], built["heads"]) == (3, 3) else []
    return [
        *rows,
        Row("8.2", "three heads would do for D = 3", "3", 1, met, told, "retrieval-interp theory construct 3"),
    ]


def section_9() -> list[Row]:
    """D: every run is counted, and every circuit and emergence of those that solve the task."""
    runs, solved = of_shape("paper_d")
    planned, losses = 3 - len(runs), [loss_of(one)["mean"] for one in runs]
    low, high = MSE
    letter, found = ([own.replaced[how]["mean"] for own in circuits(solved)] for how in (True, False))
    rows = [
        Row("9.2", "D: validation MSE 0.031", f"{low} to {high}", 1, [low <= loss <= high for loss in losses],
            listed(f"{loss:.4f}" for loss in losses) + " (a lower one is no miss of ours)", TRAIN, planned),
        Row("9.2", "D: 0.045 with every head replaced, by Appendix E to the letter", "below 0.05", 1,
            [loss < THRESHOLD for loss in letter], listed(f"{loss:.4f}" for loss in letter), FIND_D, planned),
        Row("9.2 (ours)", "D: with the circuit as found in the place of all attention", "-", 1,
            [loss < THRESHOLD for loss in found], listed(f"{loss:.4f}" for loss in found) + " (after the data)",
            FIND_D, planned),
    ]  # fmt: skip
    seen = [emerged(one) for one in solved if (one / "attention.csv").exists()]
    for place, (name, claim) in enumerate(EMERGE.items()):
        met = [one[place][0] for one in seen if one[place][0] is not None]
        told = "; ".join(one[place][1] for one in seen)
        told += f" ({len(seen) - len(met)} undecided)" if len(met) < len(seen) else ""
        rows.append(Row(f"9.2 {name}", claim, EMERGE_PAPER[place], 1, met, told, FOLLOW, planned))
    return rows


def emerged(folder: Path) -> list[tuple[bool | None, str]]:
    """Return for each of the four observations whether it holds, and what was seen."""
    seen = observations(emergence(folder, circuit_to_follow(folder)))
    found = [(one.holds, one.sentence.partition("Here: ")[2]) for one in seen]
    epoch = seen[0].numbers.get("step", 0.0) / STEPS_PER_EPOCH  # the rule of i bounds it, too
    said = f"{found[0][1]} The rule asks for epoch {EPOCHS[0]} to {EPOCHS[1]}."
    return [(found[0][0] and EPOCHS[0] <= epoch <= EPOCHS[1], said), *found[1:]]


def appendix_e() -> list[Row]:
    """Appendix E to the letter, on A to C, as the protocol has it; D stands beside them."""
    (runs, solved), (_, others) = of_shape("paper_abc"), of_shape("paper_d")
    planned, known, beside = 5 - len(runs), circuits(solved[:3]), circuits(others)

    def low(some: list[Circuit]) -> list[Circuit]:
        return [own for own in some if own.replaced[True]["mean"] < THRESHOLD]

    def without(some: list[Circuit], where: str) -> list[float]:
        """The losses without each path whose layer, compared with the first useful one, is gt or eq."""
        tables = [(own.letter, own.first_useful_layer) for own in low(some)]
        return [x for paths, first in tables for x in paths[getattr(paths["layer"], where)(first)]["uniform"]]

    def all_replaced(some: list[Circuit]) -> list[float]:
        return [own.replaced[True]["mean"] for own in some]

    rows = []
    for claim, paper, (least, most), measure in (
        ("MSE with every head replaced with its mechanism", "below 0.05", (0.0, THRESHOLD), all_replaced),
        ("MSE without one path above the first useful layer", "0.17 to 0.89", ONE_PATH, lambda x: without(x, "gt")),
        ("MSE with a path of the first useful layer uniform", "0.05 to 0.1", FIRST_LAYER, lambda x: without(x, "eq")),
    ):
        losses = measure(known)
        told = listed(f"{loss:.3f}" for loss in losses)
        told += f"; D beside them: {listed(f'{loss:.3f}' for loss in measure(beside))}"
        met = [least <= loss <= most for loss in losses]
        rows.append(Row("E", f"A to C: {claim}", paper, 3, met, told, DISCOVER, planned))
    return rows


FOUR = "python studies/paper/run.py FOLDER"
TRAIN = f"{FOUR}; retrieval-interp models export"
DISCOVER, FIND_D = "retrieval-interp discover data/paper/NAME", "retrieval-interp discover transformer_d"
FOLLOW = "retrieval-interp study emergence transformer_d"
EMERGE = {
    "i": "D: an induction head emerges first and abruptly",
    "ii": "D: quickly after, a head above it brings x2",
    "iii": "D: the last partial losses fall in order",
    "iv": "D: the last head emerges much later than the one before",
}
EMERGE_PAPER = ("after 450 epochs", "layer 22 above 14 and 21", "x3, then x4 (figure 6)", "figure 7")


def ledger() -> list[Row]:
    """Return all rows, in the order of the paper. A missing or damaged file is an error."""
    models_of = (
        "not the paper's models; SmolLM2-135M-Instruct, by forced choice, is at chance (docs/language_models.md)"
    )
    ask, seven = "retrieval-interp llm ask", "no symbol that takes more layers is partly learned (below 0.7)"
    sanford = f"Sanford, Hsu and Telgarsky (2024): 1 + ceil(log2(D + 1)) layers: {seven}"
    return [
        Row("4", "language models solve the equations", "almost perfectly for D up to 5", 1, [], models_of, ask),
        Row("4", "language models solve the four other formulations", "great performance", 1, [], models_of, ask),
        depth("5", f"x_D takes at least log3(2D) layers (Theorem 1): {seven}", "log3(2D)", bound_paper, 6),
        depth("5 (ours)", sanford, "-", layers_causal, 15),
        without_curriculum(), later(), in_order(), *section_8(), *section_9(), *appendix_e(),
    ]  # fmt: skip


def page(rows: list[Row]) -> str:
    """Return the ledger as a Markdown page."""
    cells = [one.cells() for one in rows]
    lines = [[*cells[0]], ["---"] * len(cells[0]), *([*one.values()] for one in cells)]
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([PAGE_HEAD, *table, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs" / "claims.md")
    out, found = parser.parse_args().out, ledger()
    write_atomically(out, page(found))
    pd.DataFrame([one.cells() for one in found]).to_csv(Path(__file__).parent / "table.csv", index=False)
    print(pd.Series([one.verdict for one in found]).value_counts().to_string())
