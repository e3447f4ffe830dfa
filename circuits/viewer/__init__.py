"""circuitsvis viewers that work offline.

- viewer.py: attention_viewer, over_training, side_by_side, Viewer
- frame.py: the contents of a viewer at one step
"""

from circuits.viewer.viewer import over_training as over_training
from circuits.viewer.viewer import side_by_side as side_by_side
