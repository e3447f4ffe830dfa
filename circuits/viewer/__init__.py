"""circuitsvis viewers that work offline.

- viewer.py: attention_viewer, over_training, side_by_side, Viewer
- frames.py: the contents of a viewer at one step
- attention_page.py: a page with viewers and average attention
"""

from circuits.viewer.viewer import over_training as over_training
from circuits.viewer.viewer import side_by_side as side_by_side
