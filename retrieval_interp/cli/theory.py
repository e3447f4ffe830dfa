"""Commands on the theory of information flow."""

from pathlib import Path
from typing import Annotated

import typer

from retrieval_interp.cli.options import Json

app = typer.Typer()


@app.command()
def depth(
    hops: Annotated[list[int] | None, typer.Argument(help="Hops D, as many as you like (default: 1 to 100).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for depth.csv and the page, depth.html.")] = None,
    as_json: Json = False,
) -> None:
    """How many layers does it take to follow D hops? Exact numbers, beside the paper's bound (section 5)."""
    from circuits.files import check_writable
    from retrieval_interp.cli.terminal import print_depths
    from retrieval_interp.depth import depths
    from retrieval_interp.depth_page import FILES, write_depth

    table = depths(hops or range(1, 101))
    page = None
    if out is not None:
        for name in FILES:
            check_writable(out / name)
        page = write_depth(table, out, " ".join(["retrieval-interp depth", *map(str, hops or [])]))
    if as_json:
        print(table.to_json(orient="records", indent=2))
        return
    print_depths(table)
    if page:
        typer.echo(f"The page is at {page}")
