"""Robustness: kills, full disks, damaged files, unusual command lines, memory and numerical precision."""
