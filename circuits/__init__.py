"""Circuits of attention heads as objects: hypothesise, ablate, validate.

Works on any HookedTransformer with named positions and a loss; knows nothing of the retrieval problem.
"""

from circuits.ablation import ablated, run_ablated
from circuits.attention import role_attention
from circuits.circuit import Circuit, Head, Path
from circuits.circuit_file import load_circuit, save_circuit
from circuits.discovery import Discovery, discover
from circuits.errors import BadInput
from circuits.evaluation import evaluate
from circuits.mechanisms import Identity, Mechanism, OneHot, Previous, Uniform
from circuits.problem import Examples, Problem
from circuits.roles import Roles
from circuits.statistics import Statistics, against_chance
from circuits.validation import validate
from circuits.validation_report import ValidationReport

__all__ = [
    "BadInput",
    "Circuit",
    "Discovery",
    "Examples",
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
    "discover",
    "evaluate",
    "load_circuit",
    "role_attention",
    "run_ablated",
    "save_circuit",
    "validate",
]
