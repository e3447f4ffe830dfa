"""Mechanisms: hypotheses about a head, as attention patterns; a user's are registered by name."""

from circuits.mechanisms.mechanism import Identity, Idle, Previous, Resample, Uniform
from circuits.mechanisms.one_hot import Condition

__all__ = ["Condition", "Identity", "Idle", "Previous", "Resample", "Uniform"]
