"""The single checks of a circuit: Appendix E of the paper, and Wang et al. 2022.

- heads_alone.py: step 3: each head alone
- removals.py: step 6: the circuit without one path, and with the path retargeted
- merging.py: two heads merged into one
- faithfulness.py: faithfulness and completeness
- content_or_position.py: content_or_position: content heads and positional heads, by mean ablation
- paper_protocol.py: Appendix E to the letter
- experiment.py: Experiment: what every check takes; verdict: how each says its outcome
"""
