"""Hold every quantitative claim of the paper against what was measured here, and write the table.

    python studies/ledger/run.py [--out docs/claims.md]

The measurements are read from data/: configs and logs of training, reports of `discover`, attention over training, and
the runs of figure 4. README.md has the question and the rule.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import chain, combinations, pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from circuit import Circuit, read_circuit

from circuits.errors import BadInput
from circuits.utils.files import write_atomically
from retrieval_interp import emergence, observations, preset, read_runs
from retrieval_interp.experiments.emergence import STEPS_PER_EPOCH, circuit_to_follow
from retrieval_interp.models.library import data_folder
from retrieval_interp.models.model_dir import LOG, read_config
from retrieval_interp.models.presets import LITERAL, Recipe
from retrieval_interp.results import Interval
from retrieval_interp.sweep.figure4 import FAILED
from retrieval_interp.sweep.plan import find_plan, load_plan
from retrieval_interp.sweep.run import LEARNED
from retrieval_interp.theory.depth import bound_paper, layers_causal
from retrieval_interp.training.curves import EMERGED, first_below, parts_of, read_losses
from retrieval_interp.training.training import LOG_EVERY

DATA = data_folder()
RECIPES = {  # the folders of the transformers that stand for the paper's A to D
    "paper": {name: f"paper_recipe/transformer_{'aaad'[n]}_seed_{n % 3}" for n, name in enumerate("ABCD")},
    "small": {name: f"transformer_{name.lower()}" for name in "ABCD"},  # fewer steps than the paper's
}
SWEEPS = {"paper": ("figure4_paper", "figure4_paper_one_seed"), "small": ("figure4_laptop", "figure4")}
RUNS = 64  # of each kind in the paper's figure 4
SOLVED, HEADS, THRESHOLD = 0.01, 4, 0.05  # a validation MSE, heads of A to C (section 8.2); a low loss (appendix E)
ONE_PATH, FIRST_LAYER = (0.17, 0.89), (0.05, 0.1)  # losses without a path above, or in the first useful layer
MSE, EPOCHS = (0.0155, 0.062), (225, 900)  # of D and its first arrival: the paper's 0.031 and 450 within a factor of 2
DECIDES = 0.5  # the least share of the way in log(step) with which a departure decides (docs/protocol_literal.md)
DEPARTURES: dict[str, tuple[str, Any]] = {  # the name at the end of a run's folder: a field of the recipe, its value
    "initialisation": ("initializer_range", None),
    "decay": ("decay", 0.4),
    "clipping": ("max_grad_norm", 1.0),
    "float32": ("precision", "float32"),  # of A alone
}
SEED = re.compile(r"(.*_seed_)([0-9]+)")  # a folder that is named by its seed
PAGE_HEAD = """# The paper's claims

This table compares each quantitative claim of the paper with the measurements of this project. The numbers come
from `data/`. `python studies/ledger/run.py` writes this page.
[The protocol of the literal reading](protocol_literal.md)
says what counts as *holds*. *Holds at smaller scale* means that the rule is met by smaller models, fewer steps
or fewer runs than the paper's. *Not measured* also means that a run does not show it either way, or that a
circuit which the rule needs was not found and those found meet the rule. *Runs* counts the trained transformers
on which a rule was tested. *Ours* marks rows that the paper does not have. Brackets are Wilson's 95% intervals.
Seeds 0 and 3 of A to C were left out of recipe `small`, and none out of recipe `paper`
([why](results.md#transformers-a-b-and-c)).

Losses of whole models come from `models export`, circuits and their losses from `discover`, emergence from
`study emergence`, sections 5 and 7.2 from `study sweep figure4_paper_one_seed` (recipe `paper`) and `study sweep
figure4` (`small`), the compiled transformer from `theory construct 3`, and departures from
`train paper_d --seed 0 --set checkpoint_every=20 --set SETTING`, or `train paper_abc --seed 0 --set SETTING`, each with
the other settings of the literal reading.
"""


def row(section: str, claim: str, paper: str = "-", **found: Any) -> dict[str, Any]:
    """Return a row: a claim, the paper's number, and what was found here.

    found: ``models``, the transformers that were measured, by their recipe and their seeds or sizes; ``runs``, the
        number of trained transformers on which the rule was tested; ``measured``, our number; ``holds``, whether the
        rule is met (None: it is not known); and ``smaller``, whether models, steps or runs are fewer than the paper's.
    """
    holds, smaller = found.pop("holds", None), found.pop("smaller", False)
    verdict = {None: "not measured", False: "differs", True: "holds at smaller scale" if smaller else "holds"}[holds]
    said = {"section": section, "claim": claim, "paper": paper, "models": "-", "runs": 0, "measured": "-"}
    return {**said, **found, "verdict": verdict}


def all_met(met: Sequence[bool], complete: bool = True) -> bool | None:
    """Return whether all cases meet a rule; None if none fails but cases are missing, or there are none."""
    return False if False in met else True if complete and met else None


def listed(numbers: Iterable[object]) -> str:
    return ", ".join(map(str, numbers))


def span(numbers: Sequence[int]) -> str:
    """Return ascending numbers, such as ``1 to 8``, or ``2, 4, 8`` if some between them are missing."""
    first, last = numbers[0], numbers[-1]
    return f"{first} to {last}" if len(numbers) > 2 and len(numbers) == last - first + 1 else listed(numbers)


def spread(losses: Sequence[float]) -> str:
    """Return a text such as ``0.030 to 0.076``, or ``0.030`` if all losses are the same."""
    return " to ".join(dict.fromkeys((f"{min(losses):.3f}", f"{max(losses):.3f}"))) if losses else "-"


def share(right: int, n: int) -> str:
    """Return a text such as ``18 of 18 [0.82, 1.00]``, with Wilson's 95% interval; ``0 of 0`` has none."""
    interval = Interval.of_share(right, n) if n else None
    return f"{right} of {n}" + (f" [{interval.low:.2f}, {interval.high:.2f}]" if interval else "")


def folder(recipe: str, name: str) -> Path:
    return DATA / RECIPES[recipe][name]


def other_seeds(recipe: str, name: str) -> dict[int, Path]:
    """Return the folders of a transformer's other seeds, which stand for no transformer of the paper, by seed."""
    base, ours = SEED.fullmatch(str(folder(recipe, name))), [folder(recipe, own) for own in RECIPES[recipe]]
    beside = [path for path in DATA.glob("*/*_seed_*") if base and str(path).startswith(base[1]) and path not in ours]
    return dict(sorted((int(seed[2]), path) for path in beside if (seed := SEED.fullmatch(str(path)))))


def every(recipe: str) -> list[Path]:
    """Return the folders of all transformers of a recipe, with the other seeds."""
    beside = [path for name in "AD" for path in other_seeds(recipe, name).values()]
    return [*(folder(recipe, name) for name in "ABCD"), *beside]


def made(path: Path) -> dict[str, Any]:
    return read_config(path)["made"]


def said(recipe: str, names: str) -> str:
    """Return the recipe and the seeds of transformers, such as ``recipe small, A seed 2, B seed 1``."""
    seeds = [made(folder(recipe, name))["seed"] for name in names]
    return f"recipe {recipe}, {listed(f'{name} seed {seed}' for name, seed in zip(names, seeds, strict=True))}"


def loss_of(path: Path) -> dict[str, float]:
    """Return the loss on fresh sequences, as ``models export`` measured it, in the stored precision."""
    exported = made(path)["exported"]
    return exported[f"loss_{exported['precision']}"]


def text(loss: dict[str, float]) -> str:
    return f"{loss['mean']:.4f} ± {loss['standard_error']:.4f}"


def is_run_of(path: Path, changes: dict[str, Any]) -> bool:
    """Whether a folder holds a finished run of A or D by the literal reading, with some changed settings."""
    config, of = made(path), "paper_d" if "transformer_d" in path.name else "paper_abc"
    wanted = {**asdict(preset(of, **{**LITERAL, **changes}).recipe), "checkpoint_every": 0}
    betas = tuple(config["recipe"].get("betas", Recipe.betas))  # older runs do not name them
    recipe, named = {**config["recipe"], "betas": betas, "checkpoint_every": 0}, SEED.match(path.name)
    whole = max(read_losses(path / LOG)["loss"], default=0) == wanted["steps"]
    return bool(whole and recipe == wanted and config["preset"] == of and named and config["seed"] == int(named[2]))


def figure4(recipe: str) -> pd.DataFrame:
    """Return the runs of figure 4 that stand for the paper's; columns ``run`` and ``layers`` are added."""
    name, plan = SWEEPS[recipe]
    runs = read_runs(DATA / "sweeps" / name / "runs.csv")
    if {*load_plan(find_plan(plan, "laptop"))} != {*zip(runs["preset"], runs["seed"], strict=True)}:
        raise BadInput(f"{name}: expected the runs of the plan {plan}; retrieval-interp study sweep {plan}")
    layers = runs["preset"].map(lambda name: preset(name).architecture.n_layers)
    return runs.assign(run=runs["preset"] + "/" + runs["seed"].astype(str), layers=layers)


def of_sweep(recipe: str, runs: pd.DataFrame) -> dict[str, Any]:
    """Return what a row says of the runs on which its rule was tested."""
    hops = sorted({preset(name).task.n_steps for name in runs["preset"].unique()})
    layers, seeds, n = sorted({*runs["layers"]}), sorted({*runs["seed"]}), runs["run"].nunique()
    models = f"D = {span(hops)}; layers: {span(layers)}; recipe {recipe}, seeds {span(seeds)}"
    return {"models": models, "runs": n, "smaller": recipe == "small" or n < RUNS}


def theorem_1(recipe: str) -> dict[str, Any]:
    """Test the models of figure 4 that have too few layers for some symbol, by the paper's bound."""
    runs = figure4(recipe)
    short = runs[runs["layers"] < runs["symbol"].str[1:].astype(int).map(bound_paper)]
    lowest = short.groupby("run")["loss"].min()
    breaking = int((lowest < FAILED).sum())
    measured = f"{share(breaking, len(lowest))} models partly learned a symbol that takes more layers than the model "
    measured += f"has (loss below {FAILED}; lowest loss {lowest.min():.3f})"
    found = {**of_sweep(recipe, runs[runs["run"].isin(lowest.index)]), "measured": measured, "holds": not breaking}
    return row("5", "x_D takes at least log3(2D) layers (Theorem 1)", "log3(2D)", **found)


def one_layer() -> dict[str, Any]:
    """Test the number of layers under Assumption 1, of which one model shows the contrary."""
    shape, loss = preset("one_layer").architecture, loss_of(DATA / "one_layer")
    claim = "positions attend only where they share information (Assumption 1), so that D hops take at least "
    models = f"D = 1; {shape.n_layers} layer of {shape.n_heads} heads with MLPs, recipe small"
    measured = f"with {shape.n_layers} layer instead of {layers_causal(1)} the loss of x1 is {text(loss)} "
    found = {"models": models, "runs": 1, "measured": f"{measured}(rule: not below {FAILED})"}
    found |= {"holds": loss["mean"] >= FAILED, "smaller": True}
    return row("5 (ours)", f"{claim}1 + ceil(log2(D + 1)) layers", "assumed", **found)


def section_7(recipe: str) -> list[dict[str, Any]]:
    """Test the statements of section 7.2 on figure 4."""
    runs = figure4(recipe)
    alone, curriculum = (runs[runs["preset"].str.contains(kind)] for kind in ("_nonic_", "_ic_"))
    failed = int((alone["loss"] > FAILED).sum())
    high = f"{share(failed, len(alone))} runs (lowest loss {alone['loss'].min():.3f})"
    losses = curriculum.groupby(["symbol", "layers"])["loss"].mean().unstack()  # averaged over seeds
    means = [*losses.mean(axis=1)]
    fewest = [next((int(n) for n, loss in depths.items() if loss < LEARNED), None) for _, depths in losses.iterrows()]
    later = f"mean over depths of the final loss of {listed(losses.index)}: {listed(f'{mean:.3f}' for mean in means)}; "
    later += f"fewest layers with a mean over seeds below {LEARNED}: {listed(n or 'none' for n in fewest)}"
    rise = {"measured": later, "holds": later_need_more(means, fewest)}
    orders, of = [order([*fell]) for _, fell in curriculum.groupby("run")["fell"]], of_sweep(recipe, curriculum)
    claim, paper = "without the implicit curriculum, the loss stays high at every depth", f"above {FAILED} in 100%"
    return [
        row("7.2", claim, f"{paper} of 64 runs", **of_sweep(recipe, alone), measured=high, holds=failed == len(alone)),
        row("7.2", "later symbols of a chain need more layers", "figure 4, right", **of, **rise),
        in_order(orders, of["models"], recipe == "small"),
    ]


def later_need_more(means: Sequence[float], layers: Sequence[int | None]) -> bool:
    """Whether the mean loss rises from symbol to symbol, none needs fewer layers, and the last more than the first.

    A symbol that is learned at no depth has no number of layers, and the rule is not met.
    """
    needed = [number for number in layers if number is not None]
    rising = all(a < b for a, b in pairwise(means)) and all(a <= b for a, b in pairwise(needed))
    return rising and len(needed) == len(layers) and needed[0] < needed[-1]


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


def in_order(orders: Sequence[str | None], models: str, smaller: bool) -> dict[str, Any]:
    """Return the row on the order of learning, from the order in each run."""
    n, at_once = len(orders) - orders.count(None), orders.count("at once")
    measured = f"{share(orders.count('in order'), n)} runs in which two or more symbols fell"
    measured += f"; in {at_once} runs two fell within the same {LOG_EVERY} steps" if at_once else ""
    found = {"models": models, "runs": n, "measured": measured, "smaller": smaller or n < RUNS}
    found["holds"] = "otherwise" not in orders if n else None
    return row("7.2", "partial losses fall below 0.5 in the order of the chain", "in 100% of 64 runs", **found)


def trained(recipe: str) -> dict[str, Any]:
    """Test the order of learning on all transformers of a recipe."""
    orders = []
    for losses in (read_losses(own / LOG) for own in every(recipe)):
        parts = [losses[part].items() for part in parts_of(losses)]
        orders.append(order([next((step for step, loss in curve if loss < EMERGED), None) for curve in parts]))
    return in_order(orders, f"{said(recipe, 'ABCD')}, and all other seeds", recipe == "small")


def circuits_of(recipe: str, names: str) -> tuple[dict[str, Circuit], dict[str, Circuit], list[str]]:
    """Return the circuits that were found, those of other seeds, and a text on those that were not found."""
    circuits = {name: read_circuit(folder(recipe, name)) for name in names}
    seeds = {f"{name} seed {n}": own for name in names if name in "AD" for n, own in other_seeds(recipe, name).items()}
    none = [
        f"{name} (its own loss is {text(loss_of(folder(recipe, name)))})" for name, own in circuits.items() if not own
    ]
    known = {name: own for name, own in circuits.items() if own}
    beside = {name: own for name, path in seeds.items() if (own := read_circuit(path))}
    return known, beside, [f"no circuit found for {listed(none)}"] if none else []


def section_8(recipe: str) -> list[dict[str, Any]]:
    """Test the claims on A, B and C; the other seeds stand beside them."""
    circuits, others, missing = circuits_of(recipe, "ABC")
    known, of = [*circuits.values()], {"models": said(recipe, "ABC"), "smaller": recipe == "small"}

    def claim(what: str, paper: str, holds: bool | None, measure: Callable[[list[Circuit]], str]) -> dict[str, Any]:
        texts = [measure(known), *(f"{name}, beside them: {measure([own])}" for name, own in others.items()), *missing]
        found = {**of, "runs": len(known), "measured": "; ".join(texts), "holds": holds}
        return row("8.2" if paper != "-" else "8.2 (ours)", f"A, B and C: {what}", paper, **found)

    def different(some: list[Circuit]) -> str:
        shared = [len(one.above & other.above) for one, other in combinations(some, 2)]
        said = f"; every two circuits share {listed(shared)} (very different: less than half)" if shared else ""
        return f"{listed(len(own.above) for own in some)} paths above the first useful layer{said}"

    def joining(some: list[Circuit]) -> str:
        return f"{sum(own.joins_pairs() for own in some)} of {len(some)}"

    losses = [loss_of(folder(recipe, name)) for name in "ABC"]
    beside = [f"A seed {n}, beside them: {text(loss_of(own))}" for n, own in other_seeds(recipe, "A").items()]
    solved = {
        "measured": "; ".join([listed(map(text, losses)), *beside]),
        "holds": all(loss["mean"] < SOLVED for loss in losses),
    }
    heads = all_met([own.heads == HEADS for own in known], not missing)
    joins = all_met([own.joins_pairs() for own in known], not missing)
    pairs = [(one.above, other.above) for one, other in combinations(known, 2)]
    apart = all_met([len(a & b) < min(len(a), len(b)) / 2 for a, b in pairs], not missing)
    return [
        row("8.2", "A, B and C: validation MSE", f"below {SOLVED}", **of, runs=len(losses) + len(beside), **solved),
        claim("heads with a directly needed path", str(HEADS), heads, lambda some: listed(own.heads for own in some)),
        claim("the first useful head joins the members of every pair", "3 of 3", joins, joining),
        claim("apart from the first head, the circuits are very different", "figure 5", apart, different),
    ]


def fewest_heads() -> dict[str, Any]:
    """Test that three heads are enough for D = 3: what is possible, whatever training finds."""
    built = json.loads((DATA / "construction.json").read_text())
    sizes, loss = (built["hops"], built["heads"]), built["loss"]
    measured = f"a transformer with {sizes[1]} heads that solves D = {sizes[0]} with a loss of {text(loss)}"
    found = {"models": "compiled, not trained; reads tokens", "measured": measured}
    found["holds"] = loss["mean"] < SOLVED if sizes == (3, 3) else None
    return row("8.2", "three heads would be enough for D = 3, by design", "3 instead of 4", **found)


def appendix_e(recipe: str, letter: bool) -> list[dict[str, Any]]:
    """Test the losses with heads replaced and paths removed, to the letter or for the circuits as they were found."""
    known, others, missing = circuits_of(recipe, "ABCD")
    low = {name: own for name, own in known.items() if own.replaced[letter]["mean"] < THRESHOLD}
    rows = ["uniform"] if letter else ["uniform", "identity"]

    def losses(some: Iterable[Circuit], where: str, rows: list[str]) -> list[float]:
        """Return the losses without each path whose layer, compared with the first useful one, is gt, eq or lt."""
        tables = [(own.letter if letter else own.paths, own.first_useful_layer) for own in some]
        return [x for paths, first in tables for x in paths[getattr(paths["layer"], where)(first)][rows].stack()]

    def all_replaced(some: Sequence[Circuit]) -> tuple[str, list[float]]:
        of = [own.replaced[letter]["mean"] for own in some]
        return listed(f"{loss:.4f}" for loss in of), of

    def above(some: Sequence[Circuit]) -> tuple[str, list[float]]:
        of = losses(some, "gt", rows)
        within = sum(ONE_PATH[0] <= loss <= ONE_PATH[1] for loss in of)
        how = f" (row {' or '.join(rows)}; {within} of {len(of)} losses in the paper's range)"
        return spread(of) + (how if of else ""), of

    def first(some: Sequence[Circuit]) -> tuple[str, list[float]]:
        of, below = losses(some, "eq", ["uniform"]), losses(some, "lt", ["uniform"])
        return spread(of) + (f" (below that layer {spread(below)})" if below else ""), of

    def claim(what: str, limits: tuple[float, float], tested: dict[str, Circuit], measure: Callable[..., Any]) -> Any:
        said_of, of = measure([*tested.values()])
        texts = [said_of] if tested else []
        if left := [name for name in known if name not in tested]:
            texts.append(f"not tested for {', '.join(left)}, whose loss is not below {THRESHOLD} with every path")
        for name, own in others.items():
            ok = tested is known or own.replaced[letter]["mean"] < THRESHOLD
            texts.append(f"{name}, beside them: {measure([own])[0] if ok else 'not tested'}")
        holds = all_met([limits[0] <= loss <= limits[1] for loss in of], len(tested) == 4)
        paper = " to ".join(map(str, limits)) if limits[0] else f"below {limits[1]}"
        found = {"models": said(recipe, "ABCD"), "runs": len(tested), "measured": "; ".join([*texts, *missing])}
        section = "E" if letter else "E (ours)"
        return row(section, f"A to D: MSE with {what}", paper, **found, holds=holds, smaller=recipe == "small")

    return [
        claim("every head replaced with its mechanism", (0.0, THRESHOLD), known, all_replaced),
        claim("one path above the first useful layer removed", ONE_PATH, low, above),
        claim("the row of a path in the first useful layer made uniform", FIRST_LAYER, low, first),
    ]


def section_9(recipe: str) -> list[dict[str, Any]]:
    """Test the claims on transformer D and its training; the other seeds stand beside it."""
    path, others, small = folder(recipe, "D"), other_seeds(recipe, "D"), recipe == "small"
    circuit, loss, of = read_circuit(path), loss_of(path), {"models": said(recipe, "D"), "smaller": small}
    seeds = {"": circuit, **{f"seed {seed}, beside it: ": read_circuit(own) for seed, own in others.items()}}
    observed = [observations(emergence(own, circuit_to_follow(own))) for own in (path, *others.values())]

    def replaced(section: str, claim: str, paper: str, letter: bool) -> dict[str, Any]:
        texts = [] if circuit else [f"no circuit found: its own loss is {text(loss)}"]
        texts += [f"{name}{text(own.replaced[letter])}" for name, own in seeds.items() if own]
        found = {"runs": int(circuit is not None), "measured": f"{'; '.join(texts)} (rule: below {THRESHOLD})"}
        holds = circuit.replaced[letter]["mean"] < THRESHOLD if circuit else None
        claim = f"D: MSE with all attention replaced with its circuit{claim}"
        return row(section, claim, paper, **of, **found, holds=holds)

    def emerging(place: int, what: str, paper: str) -> dict[str, Any]:
        holds = [one[place].holds for one in observed]
        if not place:  # the protocol's rule also bounds the epoch of the first arrival
            epochs = [one[0].numbers.get("step", 0.0) / STEPS_PER_EPOCH for one in observed]
            holds = [ok and EPOCHS[0] <= at <= EPOCHS[1] for ok, at in zip(holds, epochs, strict=True)]
        measured = observed[0][place].sentence.partition(" (")[2].removesuffix(")")
        if beside := holds[1:]:
            met, unmet, unknown = (beside.count(each) for each in (True, False, None))
            measured += f"; of the {len(beside)} other seeds {met} meet the rule, {unmet} do not, {unknown} are open"
        found = {"runs": len(holds), "measured": measured, "holds": holds[0]}
        return row(f"9.2 {observed[0][place].name}", f"D: {what}", paper, **of, **found)

    texts = [text(loss), *(f"seed {seed}, beside it: {text(loss_of(own))}" for seed, own in others.items())]
    near = {"measured": f"{'; '.join(texts)} (rule: {MSE[0]} to {MSE[1]})", "holds": MSE[0] <= loss["mean"] <= MSE[1]}
    return [
        row("9.2", "D: validation MSE", "0.031", **of, runs=1 + len(others), **near),
        replaced("9.2", "", "0.045", letter=True),
        replaced("9.2 (ours)", ", as it was found", "-", letter=False),
        emerging(0, "an induction head emerges first and abruptly", "after 450 epochs"),
        emerging(1, "quickly after, a head above it brings x2", "layer 22 above 14 and 21"),
        emerging(2, "the last partial losses fall in order", "x3, then x4 (figure 6)"),
        emerging(3, "the last head emerges much later than the one before", "figure 7"),
    ]


def departure(model: str, name: str) -> dict[str, Any]:
    """Return the row of one departure; a run that is missing, unfinished or of other settings is not measured."""
    field, value = DEPARTURES[name]
    setting = f"{field}={'none' if value is None else f'{value:g}' if isinstance(value, float) else value}"
    section, claim = "9.2 (ours)" if model == "D" else "8.2 (ours)", f"{name} alone decides when x1 is learned"
    run, found = departed(model, name), {"models": f"recipe paper with {setting}, seed 0"}
    if run is not None:
        paper, small = folder("paper", model), folder("small", model)
        changed, before, after = (falls(own) for own in (run, paper, small))
        steps = listed("never" if step is None else f"{step:.0f}" for step in (changed, before, after))
        measured = f"x1 falls below 0.5 at step {steps} (with it; without it; {said('small', model)}, "
        measured += f"{made(small)['recipe']['steps']} steps)"
        decides = None
        if name == "decay" and changed and changed < (begins := decay_begins(run)):
            measured += f". The decay begins at step {begins:.0f}, after that, so that it cannot decide"
            decides = False
        elif before and after and before != after:
            way = math.log(before / after)
            gone = max(0.0, math.log(before / changed) / way) if changed else 0.0
            off = once_more(model, before, way)
            measured += f": {gone:.0%} of the way in log(step) (decides: from {DECIDES:.0%}; nothing is decided if the "
            measured += f"same recipe once more is as far off: {off:.0%})"
            decides = gone >= DECIDES if off < DECIDES else None
        found |= {"runs": 1, "measured": measured, "holds": decides}
    return row(section, f"{model}, one seed: {claim}", **found)


def departed(model: str, name: str) -> Path | None:
    run = Path(f"{folder('paper', model)}_{name}")
    return run if (run / LOG).exists() and is_run_of(run, dict([DEPARTURES[name]])) else None


def decay_begins(run: Path) -> float:
    recipe = made(run)["recipe"]
    return float(recipe["steps"] * (1 - recipe["decay"]))


def falls(path: Path) -> float | None:
    """Return the step at which the loss of x1 falls below 0.5, interpolated; None if it never does."""
    return first_below(read_losses(path / LOG)["x1"], EMERGED)


def once_more(model: str, before: float, way: float) -> float:
    """Return how far x1 falls from where it fell before, if the paper's recipe runs once more.

    The run with decay is such a run until the decay begins. The distance is a share of ``way``, in log(step), and a
    lower bound if x1 has not fallen by then; 0 if there is no such run.
    """
    run = departed(model, "decay")
    if run is None or before >= (begins := decay_begins(run)):
        return 0.0
    return abs(math.log(min(falls(run) or math.inf, begins) / before) / way)


def ledger() -> pd.DataFrame:
    """Return all rows, in the order of the paper. A missing or damaged file is an error.

    Raises:
        BadInput: a run does not follow the literal reading that it stands for.
    """
    if wrong := [own for own in every("paper") if not is_run_of(own, {})]:
        raise BadInput(f"{wrong[0]}: expected a finished run by the paper's recipe")
    four, others = "language models solve the ", "great performance (lives-with, kingdoms: D = 5)"
    rows = [row("4", f"{four}equations formulation", "almost perfectly for D up to 5")]
    rows += [row("4", f"{four}four other formulations", others), *map(theorem_1, SWEEPS), one_layer()]
    rows += [*chain(*map(section_7, SWEEPS)), *map(trained, RECIPES)]
    rows += [*chain(*map(section_8, RECIPES)), fewest_heads(), *chain(*map(section_9, RECIPES))]
    rows += [departure(model, name) for model in "DA" for name in DEPARTURES if model + name != "Dfloat32"]
    rows += [claim for recipe in RECIPES for letter in (True, False) for claim in appendix_e(recipe, letter)]
    return pd.DataFrame(rows)


def page(rows: pd.DataFrame) -> str:
    """Return the ledger as a Markdown page."""
    columns = ["section", "claim", "paper", "models", "runs", "measured", "verdict"]
    table = rows[columns].astype(str).replace({"runs": {"0": "-"}})
    cells = [columns, ["---"] * len(columns), *table.to_numpy().tolist()]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells]
    return "\n".join([PAGE_HEAD, *lines, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs" / "claims.md")
    out, found = parser.parse_args().out, ledger()
    write_atomically(out, page(found))
    print(found.groupby("verdict", sort=False).size().to_string())
