"""The tasks that models are trained on.

- task.py: TrainableTask: the base class of all tasks
- vectors.py: VectorTask: the base class of tasks on sequences of vectors
- retrieval.py: RetrievalTask: the minimal formulation (paper, section 6)
- high_level.py: chain_variables, squared_distances: x0 -> x1 -> ... -> xD, for interchange interventions
- conditional.py: ConditionalTask: conditional retrieval (paper, section 3.1)
- equations.py: EquationsTask: texts for a small language model
- words.py: WordsTask: a language task in a small vocabulary
- prompted.py: Prompted: questions in words as a task
- registry.py: all tasks by name
"""
