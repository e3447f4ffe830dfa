"""One self-contained page: nothing is loaded from a network, nothing is sent."""

from typing import Any

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from circuits.viewer import viewer_script

# Plotly's own button would upload the chart to a cloud.
PLOTLY_CONFIG = {"showSendToCloud": False, "displaylogo": False, "responsive": True}


def figure_element(figure: go.Figure, name: str) -> Markup:
    """A plotly figure for a page that holds plotly.js already; ``name`` becomes its id."""
    html = figure.to_html(full_html=False, include_plotlyjs=False, config=PLOTLY_CONFIG, div_id=name, auto_play=False)
    return Markup(html)


def render_page(template: str, package: str = "circuits", **contents: Any) -> str:
    """Fill a template of a package; texts are escaped, figures and viewers are not.

    Args:
        template: its name in the package's folder ``templates``; it may include those of this package.
        package: whose template it is.
        contents: what it names.
    """
    loader = jinja2.ChoiceLoader([jinja2.PackageLoader(owner) for owner in (package, "circuits")])
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    scripts = {"plotly": Markup("<script>" + get_plotlyjs() + "</script>"), "circuitsvis": Markup(viewer_script())}
    return environment.get_template(template).render(scripts=scripts, **contents)
