"""Training a preset.

- training.py: train; TrainingRun: the loop, its log and checkpoints, and resuming
- training_step.py: TrainingStep: one step: batches, learning rate, optimiser
- training_pass.py: the forward pass that is compiled for training
- curves.py: losses and attention over the steps of a run
"""
