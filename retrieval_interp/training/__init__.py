"""Training a preset.

- training.py: train; TrainingRun: the loop, its log and checkpoints, and resuming
- training_step.py: TrainingStep: one step: batches, learning rate, optimiser
- training_pass.py: the forward pass that is compiled for training
- myopic_pass.py: the forward pass of myopic training, in which a loss trains its own position only
- thinking_pass.py: the forward pass of a model that reads its words or thoughts again
- curves.py: losses and attention over the steps of a run
"""
