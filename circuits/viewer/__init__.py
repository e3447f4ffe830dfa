"""Attention in circuitsvis viewers that work offline, in every notebook and as files of their own."""

from circuits.viewer.viewer import Viewer, attention_viewer, over_training, side_by_side

__all__ = ["Viewer", "attention_viewer", "over_training", "side_by_side"]
