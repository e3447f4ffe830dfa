"""Interchange interventions: which symbol passes through which role, after which layer?

- variables.py: Variable, Interchangeable: the high-level model of a task
- interchange.py: interchange
- predicted.py: predicted_accuracy: the same by a circuit's paths alone
- interchange_result.py, interchange_figure.py: InterchangeResult: tables, heat maps, sentences
"""
