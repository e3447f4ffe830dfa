"""What models are trained on.

- task.py: Task: what all tasks share
- vectors.py: what tasks on sequences of vectors share
- retrieval.py: RetrievalTask: the minimal formulation (paper, section 6)
- conditional.py: two values must be found to find the third
- writing.py: every symbol written down, and read again
- equations.py: a small language model's texts
- prompted.py: a prompt's tokens as roles
- registry.py: all tasks by name
"""
