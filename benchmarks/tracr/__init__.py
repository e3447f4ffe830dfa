"""Models that others made: three of tracr's programs, whose selectors are known, and what ``discover`` finds in them.

- compile_programs.py: the programs as weights; runs in an environment of its own
- programs.py: the models, what they compute, and what their heads select
- __main__.py: the benchmark
"""
