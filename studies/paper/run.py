"""Train the paper's transformers, in the order of docs/protocol.md.

    python studies/paper/run.py FOLDER [--only PRESET ...] [--table]

The runs go into FOLDER, one after the other, and continue where they stopped; Ctrl-C saves the one that is under way.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from retrieval_interp.locks import claimed
from retrieval_interp.models.model_dir import LOCK, LOG, WEIGHTS
from retrieval_interp.training.training import (
    VALIDATE_EVERY,
    TrainingDiverged,
    TrainingRun,
    choose_device,
    interruptions,
    start_run,
)

LEARNED, VALIDATIONS = 0.01, 2  # a run of figure 4 stops if all symbols are below it, so many times in a row
PLATEAU, DIVERGED = 0.5, "diverged.txt"
CURVES = [
    *((f"figure4_ic_{n}", {}) for n in range(1, 9)),
    *((f"figure4_nonic_{n}", {"implicit_curriculum": own}) for n in (2, 4, 8) for own in (False, True)),
]


def runs() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield the preset, the seed and the changes of every run, in order."""
    yield from ((name, 0, changes) for name, changes in CURVES)
    yield from (("paper_abc", seed, {}) for seed in range(5))
    yield from (("paper_d", seed, {"checkpoint_every": 20}) for seed in range(3))
    yield from ((name, seed, changes) for seed in (1, 2) for name, changes in CURVES)


def place(folder: Path, name: str, seed: int, changes: dict[str, Any]) -> Path:
    """Return the folder of one run."""
    return folder / f"{name}{'_with_curriculum' if changes.get('implicit_curriculum') else ''}_seed_{seed}"


def records(run: Path) -> list[dict[str, Any]]:
    """Return the log of a run."""
    log = run / LOG
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def stopped(name: str, run: Path) -> bool:
    """Whether a run stops early, by the rule of the protocol."""
    last = [own["validation"]["components"] for own in records(run) if "validation" in own][-VALIDATIONS:]
    learned = [max(own.values()) < LEARNED for own in last]
    return name.startswith("figure4") and len(learned) == VALIDATIONS and all(learned)


def train(folder: Path, only: list[str]) -> None:
    """Make all that is left of the runs of some presets, or of all."""
    for name, seed, changes in runs():
        if only and name not in only:
            continue
        own = place(folder, name, seed, changes)
        if not (own / "config.json").exists():
            start_run(own, name, seed=seed, **changes)
        with claimed(own / LOCK) as mine, interruptions() as interrupted:
            if not mine or (own / WEIGHTS).exists() or (own / DIVERGED).exists():
                continue  # another process trains it, or it has ended
            run = TrainingRun(own, choose_device("cpu"), compiled=True)
            while run.step < run.recipe.steps and not (run.step % VALIDATE_EVERY == 0 and stopped(name, own)):
                try:
                    record = run.advance()
                except TrainingDiverged as error:
                    (own / DIVERGED).write_text(f"{error}\n")
                    break
                if record is not None:
                    print(own.name, json.dumps(record), flush=True)
                if interrupted:
                    run.save()
                    return
            if not (own / DIVERGED).exists():
                run.save()
                run.finish()


def table(folder: Path) -> pd.DataFrame:
    """Return one row a run: its steps, the steps at which training losses fall, and the last validation losses."""
    rows = []
    for name, seed, changes in runs():
        own = place(folder, name, seed, changes)
        logged = records(own)
        validated = [record for record in logged if "validation" in record]
        if not validated:
            continue
        last = validated[-1]["validation"]
        falls = {
            f"{symbol}_falls": next((one["step"] for one in logged if one["components"][symbol] < PLATEAU), None)
            for symbol in last["components"]
        }
        losses = {f"{symbol}_loss": loss for symbol, loss in last["components"].items()}
        ended = (own / WEIGHTS).exists() or (own / DIVERGED).exists()
        end = {"steps": logged[-1]["step"], "stopped": stopped(name, own), "ended": ended, "loss": last["loss"]}
        rows.append({"run": own.name, "preset": name, "seed": seed, **end, **falls, **losses})
    return pd.DataFrame(rows).convert_dtypes()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the runs are")
    parser.add_argument("--only", nargs="*", default=[], help="the presets to train, beside another process")
    parser.add_argument("--table", action="store_true", help="write table.csv from the logs, and train nothing")
    arguments = parser.parse_args()
    if unknown := {*arguments.only} - {name for name, _, _ in runs()}:
        parser.error(f"{sorted(unknown)[0]} is none of the protocol's presets")
    if arguments.table:
        table(arguments.folder).to_csv(Path(__file__).parent / "table.csv", index=False)
    else:
        train(arguments.folder, arguments.only)
