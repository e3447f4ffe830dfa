from .ablation import ablated as ablated
from .ablation import evaluate as evaluate
from .ablation import run_ablated as run_ablated
from .attention import role_attention as role_attention
from .checks.self_consistency import self_consistency as self_consistency
from .circuit import AttentionPath as AttentionPath
from .circuit import Circuit as Circuit
from .circuit import Head as Head
from .circuit_file import load_circuit as load_circuit
from .circuit_file import save_circuit as save_circuit
from .discovery.discovery import discover as discover
from .errors import BadInput as BadInput
from .explorer import explore as explore
from .mechanisms.fixed_pattern import FixedPattern as FixedPattern
from .mechanisms.mechanism import Mechanism as Mechanism
from .mechanisms.one_hot import OneHot as OneHot
from .mechanisms.registry import register as register
from .report.report import Report as Report
from .report.step_by_step import step_by_step as step_by_step
from .roles import Roles as Roles
from .task import Examples as Examples
from .task import Task as Task
from .tracing.path_patching import path_patching as path_patching
from .validation import validate as validate
from .viewer import attention_viewer as attention_viewer

__all__ = [
    "AttentionPath",
    "BadInput",
    "Circuit",
    "Examples",
    "FixedPattern",
    "Head",
    "Mechanism",
    "OneHot",
    "Report",
    "Roles",
    "Task",
    "ablated",
    "attention_viewer",
    "discover",
    "evaluate",
    "explore",
    "load_circuit",
    "path_patching",
    "register",
    "role_attention",
    "run_ablated",
    "save_circuit",
    "self_consistency",
    "step_by_step",
    "validate",
]
