from .ablation.evaluation import evaluate as evaluate
from .ablation.hooks import ablated as ablated
from .ablation.hooks import run_ablated as run_ablated
from .attention import attention_by_group as attention_by_group
from .attention import role_attention as role_attention
from .attention import roles_or_positions as roles_or_positions
from .checks.content_or_position import ContentOrPosition as ContentOrPosition
from .checks.content_or_position import content_or_position as content_or_position
from .checks.content_or_position import mean_patterns as mean_patterns
from .circuit import AttentionPath as AttentionPath
from .circuit import Circuit as Circuit
from .circuit import Head as Head
from .circuit_file import load_circuit as load_circuit
from .circuit_file import save_circuit as save_circuit
from .discovery.discovery import Discovery as Discovery
from .discovery.discovery import discover as discover
from .errors import BadInput as BadInput
from .errors import Unsolved as Unsolved
from .explorer import explore as explore
from .figures.attention_figure import attention_figure as attention_figure
from .figures.diagram import circuit_diagram as circuit_diagram
from .flow.flow_check import flow_check as flow_check
from .ground_truth.compile import compile_circuit as compile_circuit
from .mechanisms.fixed_pattern import FixedPattern as FixedPattern
from .mechanisms.mechanism import Mechanism as Mechanism
from .mechanisms.one_hot import OneHot as OneHot
from .mechanisms.registry import register as register
from .report.report import Report as Report
from .roles import Roles as Roles
from .task import Examples as Examples
from .task import Task as Task
from .tracing.interchange import interchange as interchange
from .tracing.mlp_ablations import mlp_ablations as mlp_ablations
from .tracing.path_patching import path_patching as path_patching
from .tracing.self_consistency import self_consistency as self_consistency
from .validation import validate as validate
from .viewer.viewer import attention_viewer as attention_viewer

__all__ = [
    "AttentionPath",
    "BadInput",
    "Circuit",
    "ContentOrPosition",
    "Discovery",
    "Examples",
    "FixedPattern",
    "Head",
    "Mechanism",
    "OneHot",
    "Report",
    "Roles",
    "Task",
    "Unsolved",
    "ablated",
    "attention_by_group",
    "attention_figure",
    "attention_viewer",
    "circuit_diagram",
    "compile_circuit",
    "content_or_position",
    "discover",
    "evaluate",
    "explore",
    "flow_check",
    "interchange",
    "load_circuit",
    "mean_patterns",
    "mlp_ablations",
    "path_patching",
    "register",
    "role_attention",
    "roles_or_positions",
    "run_ablated",
    "save_circuit",
    "self_consistency",
    "validate",
]
