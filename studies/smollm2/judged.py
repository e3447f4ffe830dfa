"""Do the first 30 heads of a method pass ``validate`` on IOI? ``judged.py`` writes ``judged.csv``."""

from pathlib import Path

import pandas as pd

from circuits import validate
from retrieval_interp import on_task, read_heads

HERE = Path(__file__).parent
METHODS = ("EAP-IG_nodes", "gates", "output_ablation")
N_HEADS, THRESHOLD, N_EXAMPLES = 30, 0.038, 512  # as our circuit has, and its threshold


def verdict(report):
    """Return what ``validate`` says of each statement, and how far the answers are from the model's, in nats."""
    losses = {"replaced": report.combined} | report.faithfulness.ablations
    said = {one.name: report.outcome(one) for one in report.statements}
    numbers = {f"nats, {kind}": round(one.loss.mean, 3) for kind, one in losses.items()}
    return {"decision": report.decision, **said, **numbers}


if __name__ == "__main__":
    model, task = on_task("smollm2", "ioi", "kl")
    rows = []
    for method in METHODS:
        circuit = read_heads(HERE / "scores" / f"ioi_{method}.json", n=N_HEADS)
        report = validate(model, task, circuit, n_examples=N_EXAMPLES, threshold=THRESHOLD)
        losses = {"replaced": report.combined} | report.faithfulness.ablations
        measured = {f"logit difference, {kind}": one.loss.measures["logit difference"] for kind, one in losses.items()}
        shown = {what: round(value, 2) for what, value in measured.items()}
        rows.append({"method": method, **verdict(report), **shown})
        pd.DataFrame(rows).to_csv(HERE / "judged.csv", index=False)
        print(rows[-1], flush=True)
