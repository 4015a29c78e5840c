"""`nestedvi reproduce`: the paper's experiments, a command each. It turns arguments into a
configuration; the rest is `paper`'s.
"""

from pathlib import Path
from typing import Annotated

import typer

from nestedvi.cli.options import (
    Order,
    Seed,
    configured_by,
    err_console,
    examples,
    given,
    names_in,
)

__all__ = ["reproduce"]

# Where help reads each experiment's defaults.
_ANNEALING = "nestedvi.paper.annealing.config:AnnealingConfig"
_HMM = "nestedvi.paper.hmm.config:HMMConfig"
_BGMM_VAE = "nestedvi.paper.bgmm_vae.config:BgmmVaeConfig"

_OUT = "Folder for results.json, table.md and the figures."
Quick = Annotated[bool, typer.Option("--quick", help="A coarse version of everything, in minutes.")]
Rows = Annotated[str | None, typer.Option(help="Rows of the table, separated by commas.")]
Iterations = Annotated[int | None, typer.Option(help="Training steps.")]
Datasets = Annotated[str | None, typer.Option("--dataset", help="mnist, fashion-mnist or both.")]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help=(
            "Settings to try instead of a row's own, as in rate_rest=5e-3,decay=true; may be"
            " repeated."
        ),
    ),
]
Validation = Annotated[
    bool,
    typer.Option("--validation", help="Evaluate on held-out training images, to choose settings."),
]
Half = Annotated[bool, typer.Option("--half", help="Encoder and decoder compute in bfloat16.")]
DataDir = Annotated[
    str | None,
    typer.Option(
        help="Folder with the image files.", show_default="$NESTEDVI_DATA, else fetched once"
    ),
]
QuickImages = Annotated[
    bool,
    typer.Option("--quick", help="Small networks, few images and steps: minutes on two cores."),
]

reproduce = typer.Typer(
    help="Rebuild the paper's experiments.",
    no_args_is_help=True,
    epilog=examples("nestedvi reproduce annealing --quick"),
)


def _print_table(out: str) -> None:
    typer.echo(Path(out, "table.md").read_text(encoding="utf-8"))
    typer.echo(f"Wrote {out}/results.json, {out}/table.md and figures")


def _positive(what: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"{what} must be a whole number; got {text!r}.")
    return int(text)


@reproduce.command(
    cls=configured_by(_ANNEALING),
    epilog=examples(
        "nestedvi reproduce annealing --quick",
        "nestedvi reproduce annealing --methods avo,nvir-star --levels 4,8",
    ),
)
def annealing(
    methods: Annotated[str | None, typer.Option(help="Method ids, separated by commas.")] = None,
    levels: Annotated[str | None, typer.Option(help="Values of K, separated by commas.")] = None,
    restarts: Annotated[
        int | None, typer.Option(help="Trainings of each cell, side by side.")
    ] = None,
    iterations: Iterations = None,
    order: Order = None,
    out: Annotated[str, typer.Option(help=_OUT)] = "nestedvi-annealing",
    jobs: Annotated[
        int, typer.Option(help="Cells trained at a time, in processes; 2 suit two cores, 12 a GPU.")
    ] = 1,
    beyond: Annotated[
        bool | None, typer.Option(help="Also further targets, many levels and training budgets.")
    ] = None,
    quick: Quick = False,
    seed: Seed = None,
) -> None:
    """Section 5.1 of the paper: the annealing table, every figure, many levels, training budgets.

    Ctrl-C saves; the same command goes on with the cell that it was in.
    """
    from nestedvi.paper.annealing.config import AnnealingConfig, quick_config
    from nestedvi.paper.annealing.run import reproduce_annealing

    chosen = given(methods=names_in(methods), restarts=restarts, iterations=iterations)
    if levels is not None:
        chosen["levels"] = tuple(_positive("K", k) for k in names_in(levels) or ())
    config = AnnealingConfig(**chosen, **given(order=order, beyond=beyond, seed=seed))
    if quick:
        config = quick_config(config)
    reproduce_annealing(config, out, jobs=jobs, console=err_console)
    _print_table(out)


@reproduce.command(cls=configured_by(_HMM), epilog=examples("nestedvi reproduce hmm --quick"))
def hmm(
    rows: Rows = None,
    iterations: Annotated[int | None, typer.Option(help="Training steps of each row.")] = None,
    order: Annotated[
        str | None, typer.Option(help="How levels are run in training: sequential or two-phase.")
    ] = None,
    particles: Annotated[int | None, typer.Option(help="Particles for each test instance.")] = None,
    test_instances: Annotated[
        int | None, typer.Option("--instances", help="Test instances.")
    ] = None,
    out: Annotated[str, typer.Option(help=_OUT)] = "nestedvi-hmm",
    jobs: Annotated[
        int, typer.Option(help="Rows trained at a time, in threads; 1 suits a CPU, 4 a GPU.")
    ] = 1,
    quick: Quick = False,
    seed: Seed = None,
) -> None:
    """Section 5.2 of the paper: learned heuristic factors in a hidden Markov model, against a
    reference log Z.

    Also a linear-Gaussian model against the Kalman filter. Ctrl-C saves; the same command goes on
    with the row that it was in.
    """
    from nestedvi.paper.hmm.config import HMMConfig, quick_hmm_config
    from nestedvi.paper.hmm.run import reproduce_hmm

    sizes = given(iterations=iterations, particles=particles, test_instances=test_instances)
    config = HMMConfig(**given(rows=names_in(rows), order=order, seed=seed), **sizes)
    if quick:
        config = quick_hmm_config(config)
    reproduce_hmm(config, out, jobs=jobs, console=err_console)
    _print_table(out)


@reproduce.command(
    "bgmm-vae",
    cls=configured_by(_BGMM_VAE),
    epilog=examples("nestedvi reproduce bgmm-vae --quick --dataset mnist"),
)
def bgmm_vae(
    datasets: Datasets = None,
    methods: Rows = None,
    seeds: Annotated[int | None, typer.Option(help="Trainings of each row, side by side.")] = None,
    iterations: Iterations = None,
    variants: Variants = None,
    validation: Validation = False,
    half: Half = False,
    data_dir: DataDir = None,
    out: Annotated[str, typer.Option(help=_OUT)] = "nestedvi-bgmm-vae",
    quick: QuickImages = False,
    seed: Seed = None,
) -> None:
    """Section 5.3 of the paper: inferring class proportions of mini-batches of images without
    labels, NVI against RWS.

    Ctrl-C saves; the same command goes on with the row that it was in.
    """
    from nestedvi.paper.bgmm_vae.config import BgmmVaeConfig, quick_config
    from nestedvi.paper.bgmm_vae.run import reproduce_bgmm_vae

    chosen = given(methods=names_in(methods), seeds=seeds, iterations=iterations, seed=seed)
    if datasets not in (None, "both"):
        chosen["datasets"] = names_in(datasets)
    if variants:
        chosen["variants"] = tuple(variants)
    if validation:
        chosen["split"] = "validation"
    if half:
        chosen["half"] = True
    config = BgmmVaeConfig(**chosen)
    if quick:
        config = quick_config(config)
    reproduce_bgmm_vae(config, out, data_dir=data_dir, console=err_console)
    _print_table(out)
