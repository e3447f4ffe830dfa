"""What a worker elsewhere does in the tests of clusters; imported there, so it imports nothing that computes."""

import os
import time
from pathlib import Path

from retrieval_interp.sweep.run import COLUMNS, RESULT, train

RELEASED, STARTED = "released", "started"


def train_when_released(folder: Path, device: str) -> str | None:
    """Say in the folder of the sweep that a run has begun, and when all may go on, finish it; seed 2 is trained."""
    sweep, seed = folder.parent.parent, int(folder.name.removeprefix("seed-"))
    (sweep / f"{STARTED}-{os.getpid()}").touch()
    while not (sweep / RELEASED).exists():
        time.sleep(0.05)
    if seed == 2:
        return train(folder, device)
    (folder / RESULT).write_text(f"{','.join(COLUMNS)}\nwaiting,{seed},x1,0.1,,1.0,cpu\n")
    return None
