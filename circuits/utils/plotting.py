"""plotly without its button that sends a chart to a server: whatever draws a figure imports ``go`` from here."""

import plotly.graph_objects as go
import plotly.io

PLOTLY_CONFIG = {"showSendToCloud": False, "displaylogo": False, "responsive": True}
for _name in plotly.io.renderers:  # they show figures in notebooks
    if isinstance(config := getattr(plotly.io.renderers[_name], "config", None), dict):
        config.update(PLOTLY_CONFIG)

__all__ = ["PLOTLY_CONFIG", "go"]
