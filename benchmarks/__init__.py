"""Benchmarks: ratios of times that are measured side by side in one run, because machines are noisy."""
