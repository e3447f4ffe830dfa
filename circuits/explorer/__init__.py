"""Exploring a circuit in a notebook: ``explore(model, task, circuit)``."""

try:
    from circuits.explorer.explorer import Explorer, explore
except ModuleNotFoundError as error:
    if error.name and error.name.partition(".")[0] in ("anywidget", "ipywidgets", "traitlets"):
        raise ImportError("the explorer needs an extra: pip install 'retrieval-interp[notebook]'") from error
    raise

__all__ = ["Explorer", "explore"]
