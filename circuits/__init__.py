"""Circuits of attention heads as objects: hypothesise, ablate, validate, discover.

Works on any HookedTransformer or TransformerBridge with named positions and a loss. Names are imported on first use.

    a hypothesis     Circuit, Head, AttentionPath, load_circuit, save_circuit
    mechanisms       OneHot, FixedPattern, Mechanism, register; others are in circuits.mechanisms
    a task           Task, Examples, Roles
    run              ablated, run_ablated, evaluate, role_attention, attention_by_group, mean_patterns
    test             validate, discover, content_or_position, against_chance, flow_check
    results          ValidationReport, Discovery, ContentOrPosition, ChanceReport
    take apart       path_patching, self_consistency, interchange, mlp_ablations
    look             attention_viewer, explore, circuit_diagram, attention_figure
    ground truth     compile_circuit; more is in circuits.ground_truth
    errors           BadInput, Unsolved
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
