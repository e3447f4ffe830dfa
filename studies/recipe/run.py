"""Explore the length of the warm-up on seeds from 100 on; README.md has the question and the rule.

    python studies/recipe/run.py FOLDER [--table]

The runs go into FOLDER, one after the other, each up to step 2,500, and continue where they stopped.
"""

import argparse
import json
from pathlib import Path

import pandas as pd

from retrieval_interp.models.presets import preset
from retrieval_interp.training.training import TrainingRun, choose_device, interruptions, start_run

LAST_STEP, PLATEAU = 2_500, 0.5
RUNS = [
    (name, warmup, seed)
    for seed in (100, 101)
    for name in ("figure4_ic_3", "paper_d", "figure4_ic_6")
    for warmup in (2_000, 1_000)
]


def place(folder: Path, name: str, warmup: int, seed: int) -> Path:
    """Return the folder of one run."""
    return folder / f"{name.replace('paper_d', 'transformer_d')}_warmup_{warmup}_seed_{seed}"


def explore(folder: Path) -> None:
    """Run all that is left of ``RUNS``."""
    for name, warmup, seed in RUNS:
        own = place(folder, name, warmup, seed)
        if not (own / "config.json").exists():
            decay = 1 - warmup / preset(name).recipe.steps
            start_run(own, name, seed=seed, warmup=warmup, decay=decay, max_grad_norm=1, checkpoint_every=500)
        run = TrainingRun(own, choose_device("cpu"), compiled=True)
        with interruptions() as interrupted:
            while run.step < LAST_STEP:
                record = run.advance()
                if record is not None:
                    print(own.name, json.dumps(record), flush=True)
                if interrupted:
                    run.save()
                    return
        if run.saved_step < run.step:
            run.save()


def table(folder: Path) -> pd.DataFrame:
    """Return one row a run: the steps at which training losses fall below 0.5, and the last validation loss."""
    rows = []
    for name, warmup, seed in RUNS:
        log = place(folder, name, warmup, seed) / "log.jsonl"
        if not log.exists():
            continue
        records = [json.loads(line) for line in log.read_text().splitlines()]
        falls = {
            symbol: next((own["step"] for own in records if own["components"][symbol] < PLATEAU), None)
            for symbol in records[0]["components"]
        }
        validated = [own for own in records if "validation" in own][-1]
        losses = {f"loss_{symbol}": loss for symbol, loss in validated["validation"]["components"].items()}
        last = {"step": validated["step"], "loss": validated["validation"]["loss"]}
        rows.append({"preset": name, "warmup": warmup, "seed": seed, **falls, **last, **losses})
    return pd.DataFrame(rows).convert_dtypes()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the runs are")
    parser.add_argument("--table", action="store_true", help="write table.csv from the logs, and train nothing")
    arguments = parser.parse_args()
    if arguments.table:
        table(arguments.folder).to_csv(Path(__file__).parent / "table.csv", index=False)
    else:
        explore(arguments.folder)
