"""How heads find their place: path patching, self-consistency, interchange interventions, and what MLPs do.

- variables.py: Variable, Interchangeable: the high-level model of a task
- interchange.py: interchange: which variable passes through which role and layer
- predicted.py: predicted_accuracy: the same by a circuit's paths alone
- interchange_result.py, interchange_figure.py: InterchangeResult: tables, heat maps, sentences
- path_patching.py: path_patching: by which senders heads find where to look, and what they fetch
- edges.py: Composition, Edge: its result
- role_paths.py: the paths that are studied
- receiver.py, sender.py, senders.py, unablated.py: a patched path; who wrote what; its run
- composition_scores.py: how well pairs of heads fit together, from the weights alone
- self_consistency.py: self_consistency: do heads look where the circuit says, once the others are replaced?
- self_consistency_result.py: SelfConsistency: its result
- mean.py: Mean: a mean with its standard error
- mlps.py: mlp_ablations: where MLPs are needed, and where a linear map does as well
"""
