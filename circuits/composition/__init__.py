"""Composition by path patching: by which senders do heads find where to look, and what do they fetch?

- path_patching.py: path_patching
- edges.py: Composition, Edge: its result
- receiver.py: a path whose inputs are patched
- sender.py, senders.py: the parts of a model, and what each of them wrote
- unablated.py: the run that path patching starts from
- composition_scores.py: how well pairs of heads fit together, from the weights alone
"""
