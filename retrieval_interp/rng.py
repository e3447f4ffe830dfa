"""Independent random number streams."""

from enum import StrEnum

import numpy as np

from circuits.errors import whole


class RngStream(StrEnum):
    """Independent rng streams: two streams never share random numbers, whatever the seeds."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    BATCH_ORDER = "batch order"

    def generator(self, *seeds: int) -> np.random.Generator:
        """Return a new generator for this stream and these seeds."""
        checked = (whole("the seed", seed, 0, 2**63 - 1) for seed in seeds)
        return np.random.default_rng([list(RngStream).index(self), *checked])
