"""Tasks that the field knows, as prompts for any language model, and metrics that make them tasks.

- template.py: Template: a text with slots, as tokens; word_tokenizer, for small models
- language_task.py: LanguageTask: prompts with right and wrong answers, clean and counterfactual
- induction.py: repeated tokens
- ioi.py: indirect object identification (Wang et al. 2022)
- greater_than.py: years (Hanna et al. 2023)
- docstring.py: arguments in Python docstrings (Heimersheim and Janiak 2023)
- metric.py: MetricTask: what a model loses of its logit difference, probability, or outputs
- registry.py: all tasks by name
"""
