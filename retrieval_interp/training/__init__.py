"""Training a preset.

- training.py: the loop: log, checkpoints, going on where it stopped
- training_step.py: one step: batches, learning rate, optimiser
- training_pass.py: the forward pass that training compiles
- curves.py: losses and attention over the steps of a run
"""
