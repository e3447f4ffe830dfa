"""Independent random number streams."""

from enum import StrEnum

import numpy as np

from circuits.errors import BadInput


class RngStream(StrEnum):
    """Independent rng streams: two streams never share random numbers, whatever the seeds."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    BATCH_ORDER = "batch order"

    def generator(self, *seeds: int) -> np.random.Generator:
        """Return a new generator for this stream and these seeds."""
        for seed in seeds:
            if not 0 <= seed < 2**63:
                raise BadInput(f"seed {seed} cannot be used; expected a whole number from 0 to 2^63 - 1")
        return np.random.default_rng([list(RngStream).index(self), *seeds])
