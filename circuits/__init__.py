"""Circuits of attention heads as objects: hypothesise, ablate, validate, discover.

Works on any HookedTransformer or TransformerBridge with named positions and a loss. Names are imported on first use.

    a hypothesis     Circuit, Head, AttentionPath, load_circuit, save_circuit
    mechanisms       OneHot, FixedPattern, Mechanism, register; others in circuits.mechanisms
    a task           Task, Examples, Roles
    run              ablated, run_ablated, evaluate, role_attention; more in circuits.attention
    test             validate, Report; each check by itself in circuits.checks, information flow in circuits.flow
    find             discover
    take apart       path_patching, self_consistency
    look             attention_viewer, explore, step_by_step; the diagram in circuits.figures
    ground truth     circuits.ground_truth
    errors           BadInput
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
