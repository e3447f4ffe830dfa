"""Self-contained HTML pages, which load nothing from the network and send nothing."""

import base64
import gzip
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from circuits.utils.files import to_path, write_atomically
from circuits.utils.plotting import PLOTLY_CONFIG, go

UNFOLD = """new Response(new Blob([Uint8Array.from(atob("{packed}"), (c) => c.charCodeAt(0))]).stream()
.pipeThrough(new DecompressionStream("gzip"))).text()
.then((page) => {{ document.open(); document.write(page); document.close(); }});"""


def figure_element(figure: go.Figure, name: str) -> Markup:
    """Return a plotly figure as an element of a page that has plotly.js; ``name`` becomes its id.

    The element gets the attribute ``data-drawn`` when it is drawn.
    """
    given = {
        "div_id": name,
        "post_script": "document.getElementById('{plot_id}').dataset.drawn = ''",
        "full_html": False,
    }
    drawn = figure.to_html(PLOTLY_CONFIG, auto_play=False, include_plotlyjs=False, **given)
    said = escape(f"plot: {figure.layout.title.text or name}")
    return Markup(f'<div class="scroll" tabindex="0" role="group" aria-label="{said}">{drawn}</div>')  # it may scroll


@cache
def viewer_code() -> str:
    """Return the JavaScript of attention viewers: circuitsvis, and the function that shows it."""
    package = find_spec("circuitsvis")  # importing it would import PyTorch, which is slow
    assert package
    assert package.origin
    bundle = Path(package.origin).parent / "dist" / "cdn" / "iife.js"
    code = bundle.read_text(encoding="utf-8").removesuffix("//# sourceMappingURL=iife.js.map\n")
    return code + (Path(__file__).parent / "viewer.js").read_text(encoding="utf-8")


def render_page(template: str, package: str = "circuits", **contents: Any) -> str:
    """Fill a template. Texts are escaped, figures and viewers are not.

    Args:
        template: its name in the package's folder ``templates``; it may include templates of ``circuits``.
        package: the package of the template.
        contents: the values of the template's variables.
    """
    code = {"plotly": get_plotlyjs(), "circuitsvis": viewer_code().replace("</script", "<\\/script")}
    scripts = {name: Markup(f"<script>{text}</script>") for name, text in code.items()}
    return render(template, package, scripts=scripts, **contents)


@cache
def _templates(package: str) -> jinja2.Environment:
    loader = jinja2.ChoiceLoader([jinja2.PackageLoader(owner) for owner in dict.fromkeys((package, "circuits"))])
    escaped = jinja2.select_autoescape(disabled_extensions=["md.jinja"], default=True)
    return jinja2.Environment(loader=loader, autoescape=escaped, undefined=jinja2.StrictUndefined)


def render(template: str, package: str = "circuits", **contents: Any) -> str:
    """Fill a template; texts are escaped in all but Markdown."""
    return _templates(package).get_template(template).render(**contents)


class Shown:
    """What has a page: notebooks show it in a frame, whole and compressed, however they handle scripts and styles."""

    def page(self) -> str:
        """Return a self-contained page."""
        raise NotImplementedError

    def save(self, path: Path | str) -> None:
        """Write the page to a file; BadInput if it cannot be written."""
        write_atomically(to_path(path), self.page())

    def _repr_html_(self) -> str:
        packed = base64.b64encode(gzip.compress(self.page().encode(), mtime=0)).decode()
        inner = f"<script>{UNFOLD.format(packed=packed)}</script>"
        name, style = type(self).__name__, "width: 100%; height: 40em; border: 0"
        return f'<iframe srcdoc="{escape(inner)}" title="{name}" style="{style}"></iframe>'
