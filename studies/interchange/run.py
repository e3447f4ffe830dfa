"""Which variable passes through which role: ``python studies/interchange/run.py [MODEL ...]`` writes ``table.csv``."""

import sys
from pathlib import Path

import pandas as pd
from interchange import interchange

from retrieval_interp import load

MODELS = ("transformer_a", "transformer_b", "transformer_c")

if __name__ == "__main__":
    tables = []
    for name in sys.argv[1:] or MODELS:
        model, task, circuit = load(name)
        result = interchange(model, task, circuit=circuit, n_examples=128)
        print(name, result.unpatched, result.furthest, sep="\n")
        tables.append(result.table().assign(model=name))
    table = pd.concat(tables)
    table.to_csv(Path(__file__).parent / "table.csv", index=False, float_format="%.4f")
    decided = table[table["predicted"].isin([0, 1])]  # random positions have no prediction
    alike = (decided["accuracy"] >= 0.5) == (decided["predicted"] == 1)
    print(f"on the predicted side of 0.5: {alike.sum()} of {len(decided)} rows that the paths decide")
