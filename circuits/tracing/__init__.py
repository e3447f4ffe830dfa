"""How the heads of a circuit find their place, and what passes where.

- path_patching.py: path_patching: by which senders heads find where to look, and what they fetch
- edges.py: Sender, Edge, Composition: its result; role_paths: the paths that it asks of
- unablated.py: the run that it starts from, and what each part of the model wrote in it
- patched_head.py: one head with one of its inputs patched
- self_consistency.py: do heads look by themselves where the circuit says?
- interchange.py: which symbol passes through which role, after which layer
- mlp_ablations.py: where MLPs are needed
- numbers.py: above, below, table: decisions on numbers, and tables of results
"""
