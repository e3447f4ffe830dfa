"""The peers: short references of what else finds circuits, written from their papers, on the same models and examples.

- graph.py: a transformer as nodes and edges, of which any may carry another example's activations
- metric.py: what all peers measure: the output of the right answers
- acdc.py: ACDC (Conmy et al. 2023)
- attribution.py: EAP (Syed et al. 2023) and EAP-IG (Hanna et al. 2024)
- head_scores.py: how much each head counts: from edges, attention, a discovery, and by chance
- faithfulness.py: what the heads that count most do alone: MIB's CPR and CMD (Mueller et al. 2025)
- __main__.py: the benchmark
- page.py: its results, with the curves
"""
