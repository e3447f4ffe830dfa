"""Experiments on trained models and on training.

- emergence.py: when each attention path emerges in training; observations.py compares this with the paper
- interventions.py: training with attention paths forced or forbidden
- depth_sweep.py: models of every depth trained under several conditions
- fewer_layers.py: models with one layer fewer than information flow asks for, and what their first layer fetches
- composition_study.py: how the heads of a circuit find their place; composition_page.py: its page
- elimination.py: how a symbol without a path reaches the query
- beyond_training.py: a model and its circuit under distribution shifts (shifts.py), against what the circuit predicts
  (shift_predictions.py)
- thinking_ahead.py: myopic training: do pairs compute for later queries?
- thinking_without_words.py: do residual streams that are read again extend depth?
- equivalence_page.py: the circuits that are equivalent to a model's circuit, as a page
- runs.py: many small training runs, each kept as one line of a file
"""
