"""`nestedvi sample`: posterior and evidence of a user's own model. It prints; what is run and
written is `inference.own_model`'s.
"""

from typing import Annotated, Any

import typer
from rich.markup import escape

from nestedvi.cli.options import (
    Json,
    Seed,
    err_console,
    given,
    out_console,
    print_json,
    table_with_head,
)

__all__ = ["sample"]

_MOST_ROWS = 60


def _method_names(incomplete: str) -> list[str]:
    from nestedvi.inference.sample import ANSWERS
    from nestedvi.methods import METHODS

    return [name for name in (*ANSWERS, *METHODS) if name.startswith(incomplete)]


Model = Annotated[
    str,
    typer.Argument(
        help="path/to/file.py:name of a NumPyro model or a log density, or a built-in target."
    ),
]
Data = Annotated[
    str | None,
    typer.Option(help=".npz or .csv: arrays or columns become the model's arguments."),
]
Dim = Annotated[int | None, typer.Option(help="The size of a particle, for a log density.")]
MethodName = Annotated[
    str | None,
    typer.Option(help="auto, smc, or a row of 'nestedvi methods'.", autocompletion=_method_names),
]
Particles = Annotated[int | None, typer.Option("--particles", help="Weighted particles to return.")]
Levels = Annotated[
    int | None,
    typer.Option(
        "--levels", help="K, the number of densities (smc finds it).", show_default="the method's"
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        help="Training steps of a row of nestedvi methods.",
        show_default="the method's",
    ),
]
Cache = Annotated[
    bool, typer.Option(help="Keep compiled programs on disk, so that the next run is quicker.")
]
Out = Annotated[str, typer.Option(help="Folder for report.html, posterior.json, .png and .nc.")]


def sample(
    model: Model,
    data: Data = None,
    dim: Dim = None,
    method: MethodName = None,
    num_particles: Particles = None,
    num_levels: Levels = None,
    num_steps: Steps = None,
    cache: Cache = True,
    out: Out = "nestedvi-sample",
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Posterior and evidence of your own model.

    Prints means, quantiles and log Z with its standard error, and says in plain words if they
    should not be trusted.
    """
    from nestedvi.inference.own_model import OwnModelConfig, run_own_model
    from nestedvi.progress import ProgressBar
    from nestedvi.storage.compiled import keep_compiled

    if cache:
        keep_compiled()

    budget = given(num_levels=num_levels, num_particles=num_particles, num_steps=num_steps)
    config = OwnModelConfig(model, data, dim, **given(method=method, seed=seed), **budget)
    posterior, content, written = run_own_model(
        config, out, progress=ProgressBar("sampling", err_console)
    )
    if as_json:
        print_json(content)
        return
    _print_summary(posterior.summary(), content["log_Z_true"])
    _print_files(out, written)


def _print_files(out: str, written: list[str]) -> None:
    out_console.print(
        "Wrote " + ", ".join(escape(f"{out}/{name}") for name in written), soft_wrap=True
    )
    if "posterior.nc" not in written:
        out_console.print(
            escape("No posterior.nc: ArviZ is not installed (pip install 'nestedvi[arviz]')."),
            soft_wrap=True,
        )


def _print_summary(summary: Any, truth: float | None) -> None:
    table = table_with_head("Posterior")
    table.add_column("site", no_wrap=True)
    for column in summary.rows[0].values:
        table.add_column(column, justify="right")
    shown = summary.rows[:_MOST_ROWS]
    for row in shown:
        table.add_row(escape(row.name), *(f"{value:.4g}" for value in row.values.values()))
    out_console.print(table)
    if len(shown) < len(summary.rows):
        out_console.print(f"… and {len(summary.rows) - len(shown)} more; all are in posterior.json")
    for name, fact in summary.facts().items():
        known = f"   (true {truth:.4f})" if name == "log Z" and truth is not None else ""
        out_console.print(f"{name}: {escape(fact)}{known}", highlight=False, soft_wrap=True)
