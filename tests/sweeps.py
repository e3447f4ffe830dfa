"""Presets that are trained in a second, for the tests of training and of sweeps."""

from dataclasses import replace

from retrieval_interp import RetrievalTask
from retrieval_interp.models.presets import Architecture, Preset, Recipe

MICRO = Preset(
    RetrievalTask(2, n_chains=2),
    Architecture(2, 2, d_model=16, d_head=8),
    Recipe(steps=60, batch=16, training_examples=256, lr=2e-3, warmup=10),
)
OTHER = replace(MICRO, task=RetrievalTask(1, n_chains=2))
