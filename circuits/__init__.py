"""Circuits of attention heads as objects: hypothesise, ablate, validate.

Works on any HookedTransformer with named positions and a loss; knows nothing of the retrieval problem.
"""

from typing import TYPE_CHECKING

from circuits.lazy import lazy

if TYPE_CHECKING:
    from circuits.ablation import ablated, run_ablated
    from circuits.attention import attention_by_group, role_attention
    from circuits.circuit import Circuit, Head, Path
    from circuits.circuit_file import load_circuit, save_circuit
    from circuits.content import ContentOrPosition, content_or_position, mean_patterns
    from circuits.discovery import Discovery, discover
    from circuits.errors import BadInput
    from circuits.evaluation import evaluate
    from circuits.fixed_pattern import Fixed
    from circuits.mechanisms import Identity, Mechanism, Previous, Uniform
    from circuits.one_hot import Condition, OneHot
    from circuits.problem import Examples, Problem
    from circuits.registry import register
    from circuits.roles import Roles
    from circuits.statistics import Statistics, against_chance
    from circuits.validation import validate
    from circuits.validation_report import ValidationReport

__all__ = [
    "BadInput",
    "Circuit",
    "Condition",
    "ContentOrPosition",
    "Discovery",
    "Examples",
    "Fixed",
    "Head",
    "Identity",
    "Mechanism",
    "OneHot",
    "Path",
    "Previous",
    "Problem",
    "Roles",
    "Statistics",
    "Uniform",
    "ValidationReport",
    "ablated",
    "against_chance",
    "attention_by_group",
    "content_or_position",
    "discover",
    "evaluate",
    "load_circuit",
    "mean_patterns",
    "register",
    "role_attention",
    "run_ablated",
    "save_circuit",
    "validate",
]

__getattr__ = lazy(
    __name__,
    {
        "BadInput": "errors",
        "Circuit": "circuit",
        "Condition": "one_hot",
        "ContentOrPosition": "content",
        "Discovery": "discovery",
        "Examples": "problem",
        "Fixed": "fixed_pattern",
        "Head": "circuit",
        "Identity": "mechanisms",
        "Mechanism": "mechanisms",
        "OneHot": "one_hot",
        "Path": "circuit",
        "Previous": "mechanisms",
        "Problem": "problem",
        "Roles": "roles",
        "Statistics": "statistics",
        "Uniform": "mechanisms",
        "ValidationReport": "validation_report",
        "ablated": "ablation",
        "against_chance": "statistics",
        "attention_by_group": "attention",
        "content_or_position": "content",
        "discover": "discovery",
        "evaluate": "evaluation",
        "load_circuit": "circuit_file",
        "mean_patterns": "content",
        "register": "registry",
        "role_attention": "attention",
        "run_ablated": "ablation",
        "save_circuit": "circuit_file",
        "validate": "validation",
    },
)
