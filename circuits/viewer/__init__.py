"""circuitsvis viewers that work offline.

- viewer.py: attention_viewer, over_training, side_by_side, Viewer
- frames.py: what a viewer shows at one step
- attention_page.py: viewers and average attention as a page
"""
