"""`nestedvi demo`: runs the demo and prints how well it does. What is run is
`paper.annealing.demo`'s.
"""

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from nestedvi.cli.options import Json, Seed, err_console, given, out_console, print_json

__all__ = ["demo"]


def demo(
    out: Annotated[str, typer.Option(help="Folder for demo.json and demo.png.")] = "nestedvi-demo",
    num_steps: Annotated[int | None, typer.Option("--steps", help="Training steps.")] = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Train an NVIR* sampler (K = 8) on eight modes on a circle, and show how well it does.

    Takes well under a minute on two CPU cores. Ctrl-C saves; the same command goes on from there.
    """
    from nestedvi.paper.annealing.demo import DemoConfig, run_demo
    from nestedvi.progress import ProgressBar

    config = DemoConfig(**given(num_steps=num_steps, seed=seed))
    result = run_demo(config, out, progress=ProgressBar("NVIR* on the ring", err_console))
    if as_json:
        print_json(result)
        return
    out_console.print(_table(result))
    out_console.print(f"Wrote {escape(out)}/demo.json and {escape(out)}/demo.png", soft_wrap=True)


def _table(result: dict[str, Any]) -> Table:
    title = f"NVIR* on eight modes, K = {result['config']['num_levels']}"
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_row(
        "log Ẑ",
        f"{result['log_Z']:.4f} ± {result['log_Z_stderr']:.4f}   (true {result['log_Z_true']:.4f})",
    )
    bounds = (
        f"{side} {result[f'{side}_bound']:.4f} ± {result[f'{side}_bound_stderr']:.4f}"
        for side in ("lower", "upper")
    )
    table.add_row("bounds on log Z", ", ".join(bounds))
    table.add_row("ESS", f"{result['ess_percent']:.1f} % of {result['num_particles']} particles")
    table.add_row(
        "mass in each mode",
        "  ".join(f"{share:.3f}" for share in result["mode_shares"]) + "   (true 0.125)",
    )
    table.add_row("training", f"{result['train_seconds']:.1f} s, compilation included")
    return table
