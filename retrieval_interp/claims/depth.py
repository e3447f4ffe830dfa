"""Section 5: the least number of layers."""

from pathlib import Path

from retrieval_interp.claims.claim import Claim, share, verdict_of
from retrieval_interp.claims.learning import RUNS, settings
from retrieval_interp.claims.tables import FIGURE4, ONE_LAYER, Figure4, training_loss
from retrieval_interp.figure4.figure4 import FAILED, hop
from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.runs_table import read_runs
from retrieval_interp.theory.depth import bound_paper, layers_causal


def section_5(data: Path) -> list[Claim]:
    """Return the claims on the number of layers, measured on figure 4's models and on a model of one layer."""
    return [*(_theorem_1(data / table, sweep) for table, sweep in FIGURE4.items()), _one_layer(data)]


def _theorem_1(table: Path, sweep: Figure4) -> Claim:
    """Return the claim on all models of a sweep that have too few layers for some symbol, by the paper's bound."""
    short, lowest = [], []
    for run in read_runs(table):
        layers = preset(run.preset).architecture.n_layers
        if losses := [loss for symbol, loss in run.losses.items() if layers < bound_paper(hop(symbol))]:
            short.append(run)
            lowest.append(min(losses))
    breaking = sum(loss < FAILED for loss in lowest)
    return Claim(
        "5",
        "x_D takes at least log3(2D) layers (Theorem 1)",
        "log3(2D)",
        settings(sweep, short) if short else "-",
        f"{share(breaking, len(short))} models partly learned a symbol that takes more layers than the model has (loss "
        f"below {FAILED}; lowest loss {min(lowest):.3f})"
        if short
        else "-",
        len(short),
        sweep.command,
        verdict_of(not breaking if short else None, sweep.smaller or len(short) < RUNS),
    )


def _one_layer(data: Path) -> Claim:
    """Return the claim on the number of layers under Assumption 1, of which one model shows the contrary."""
    chosen, loss = preset(ONE_LAYER), training_loss(data / ONE_LAYER)
    layers, takes = chosen.architecture.n_layers, layers_causal(1)
    return Claim(
        "5 (ours)",
        "positions attend only where they share information (Assumption 1), so that D hops take at least "
        "1 + ceil(log2(D + 1)) layers",
        "assumed",
        f"D = 1; {layers} layer of {chosen.architecture.n_heads} heads with MLPs, recipe small",
        f"with {layers} layer instead of {takes} the loss of x1 is {loss} (rule: not below {FAILED})",
        1,
        f"retrieval-interp models export RUN data/{ONE_LAYER}",
        verdict_of(loss.mean >= FAILED, smaller=True),
    )
