"""circuitsvis viewers that work offline.

- viewer.py: attention_viewer, over_training, side_by_side, Viewer
- frame.py: the contents of a viewer at one step
"""
