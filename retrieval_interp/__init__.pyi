from .experiments.emergence import Emergence as Emergence
from .experiments.emergence import emergence as emergence
from .experiments.observations import observations as observations
from .ground_truth.chains import ChainTask as ChainTask
from .ground_truth.minimal_circuit import minimal_circuit as minimal_circuit
from .models.build import VectorTransformer as VectorTransformer
from .models.importances import read_heads as read_heads
from .models.importances import write_scores as write_scores
from .models.language import language_model as language_model
from .models.language import on_task as on_task
from .models.library import Loaded as Loaded
from .models.library import data_folder as data_folder
from .models.library import load as load
from .models.library import through_training as through_training
from .models.presets import PRESETS as PRESETS
from .models.presets import preset as preset
from .prompts import formulation as formulation
from .sweep.figure4 import figure4_figure as figure4_figure
from .sweep.figure4 import figure4_table as figure4_table
from .sweep.run import read_runs as read_runs
from .sweep.run import train_many as train_many
from .tasks.prompted import Prompted as Prompted
from .tasks.retrieval import RetrievalTask as RetrievalTask
from .theory.chain_layout import chain_layout as chain_layout
from .theory.depth import depths as depths
from .theory.facts import load_facts as load_facts
from .theory.figures import depth_figure as depth_figure
from .theory.figures import spread_figure as spread_figure
from .theory.information_flow import layers_until as layers_until
from .training.training import TrainingDiverged as TrainingDiverged
from .training.training import TrainingStopped as TrainingStopped
from .training.training import train as train

__all__ = [
    "PRESETS",
    "ChainTask",
    "Emergence",
    "Loaded",
    "Prompted",
    "RetrievalTask",
    "TrainingDiverged",
    "TrainingStopped",
    "VectorTransformer",
    "chain_layout",
    "data_folder",
    "depth_figure",
    "depths",
    "emergence",
    "figure4_figure",
    "figure4_table",
    "formulation",
    "language_model",
    "layers_until",
    "load",
    "load_facts",
    "minimal_circuit",
    "observations",
    "on_task",
    "preset",
    "read_heads",
    "read_runs",
    "spread_figure",
    "through_training",
    "train",
    "train_many",
    "write_scores",
]
