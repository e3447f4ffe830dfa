"""Independent random number streams."""

from enum import StrEnum

import numpy as np

from circuits.errors import check_seed


class RngStream(StrEnum):
    """Independent rng streams: two streams never share random numbers, whatever the seeds."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    BATCH_ORDER = "batch order"

    def generator(self, *seeds: int) -> np.random.Generator:
        """Return a new generator for this stream and these seeds."""
        for seed in seeds:
            check_seed(seed)
        return np.random.default_rng([list(RngStream).index(self), *seeds])
