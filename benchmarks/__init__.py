"""Benchmarks: ratios of times that are measured side by side in one run, because machines are noisy."""

from retrieval_interp.__main__ import wait_passively

wait_passively()
