"""The command `nestedvi`. Every error a user can cause ends in one sentence on standard error and a
non-zero exit code.
"""

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nestedvi.errors import CheckpointError, DensityError, NestedviWarning, NonFiniteGradientError

__all__ = ["app", "run"]

app = typer.Typer(
    name="nestedvi",
    help=(
        "Nested variational inference: learn nested importance samplers by a divergence at every"
        " level.\n\nStart with [bold]nestedvi demo[/bold]."
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
bench = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)
app.add_typer(bench, name="bench")

reproduce = typer.Typer(help="Rebuild the paper's experiments.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")

out_console, err_console = Console(), Console(stderr=True)
# Click's class under any version of typer, some of which bring a click of their own.
UsageError: Any = typer.BadParameter.__base__

_ORDERS = "How levels are run in training: sequential, two-phase or level-parallel."
_MOST_ROWS = 60
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Seed = Annotated[
    int, typer.Option(help="Seed of all randomness; the same seed gives the same result.")
]


def _print_json(content: Any) -> None:
    from nestedvi.storage.files import to_json

    typer.echo(to_json(content))


@app.command()
def demo(
    out: Annotated[str, typer.Option(help="Folder for demo.json and demo.png.")] = "nestedvi-demo",
    steps: Annotated[int | None, typer.Option(help="Training steps.", show_default="20000")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train an NVIR* sampler (K = 8) on eight modes on a circle, and show how well it does.

    Takes well under a minute on two CPU cores. Ctrl-C saves; the same command goes on from there.
    """
    from nestedvi.paper.annealing.demo import DemoConfig, run_demo
    from nestedvi.progress import ProgressBar

    config = DemoConfig(seed=seed) if steps is None else DemoConfig(seed=seed, num_steps=steps)
    result = run_demo(config, out, progress=ProgressBar("NVIR* on the ring", err_console))
    if as_json:
        _print_json(result)
        return
    table = Table(title="NVIR* on eight modes, K = 8", show_header=False, title_justify="left")
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
    out_console.print(table)
    out_console.print(f"Wrote {escape(out)}/demo.json and {escape(out)}/demo.png", soft_wrap=True)


@app.command()
def methods(as_json: Json = False) -> None:
    """Print the methods table: what each method is made of."""
    from nestedvi.methods import METHODS

    rows = [_method_row(name, method) for name, method in METHODS.items()]
    if as_json:
        _print_json({"rows": rows})
        return
    table = Table(
        title="Methods (--json says more)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    columns = ("id", "label", "path", "kernels", "resampling", "minimises", "learns")
    for column in columns:
        table.add_column(column, no_wrap=column in ("id", "label"))
    for row in rows:
        table.add_row(
            *(" ".join(x) if isinstance(x, list) else str(x) for x in (row[c] for c in columns))
        )
    out_console.print(table)


@app.command()
def targets(as_json: Json = False) -> None:
    """Print the built-in targets: dimension, log Z and where that number comes from."""
    from nestedvi.targets.classic import TARGETS

    columns = ("dim", "log_Z", "source", "about")
    rows = [
        {"id": name, **{column: getattr(target, column) for column in columns}}
        for name, target in TARGETS.items()
    ]
    if as_json:
        _print_json({"rows": rows})
        return
    table = Table(
        title="Targets",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in ("id", "dim", "log Z", "source", "about"):
        table.add_column(
            column,
            no_wrap=column == "id",
            justify="right" if column in ("dim", "log Z") else "left",
        )
    for row in rows:
        table.add_row(
            row["id"], str(row["dim"]), f"{row['log_Z']:.6g}", row["source"], row["about"]
        )
    out_console.print(table)


@app.command()
def sample(
    model: Annotated[
        str,
        typer.Argument(
            help="path/to/file.py:name of a NumPyro model or a log density, or a built-in target."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(help=".npz or .csv: arrays or columns become the model's arguments."),
    ] = None,
    dim: Annotated[
        int | None, typer.Option(help="The size of a particle, for a log density.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="See 'nestedvi methods'.", show_default="that of nvi.sample")
    ] = None,
    particles: Annotated[
        int | None, typer.Option(help="Weighted particles to return.", show_default="2000")
    ] = None,
    levels: Annotated[
        int | None,
        typer.Option(
            help="K, the number of densities (smc finds it).", show_default="the method's"
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Training steps of a row of nestedvi methods.", show_default="the method's"
        ),
    ] = None,
    out: Annotated[
        str, typer.Option(help="Folder for posterior.json, posterior.nc and posterior.png.")
    ] = "nestedvi-sample",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Posterior and evidence of your own model.

    Prints means, quantiles and log Z with its standard error, and says in plain words if they
    should not be trusted.
    """
    from nestedvi.inference.own_model import OwnModelConfig, run_own_model
    from nestedvi.progress import ProgressBar

    config = OwnModelConfig(model, data, dim, method, levels, particles, steps, seed)
    posterior, content, written = run_own_model(
        config, out, progress=ProgressBar("sampling", err_console)
    )
    if as_json:
        _print_json(content)
        return
    _show_posterior(posterior.summary(), content["log_Z_true"])
    out_console.print(
        "Wrote " + ", ".join(escape(f"{out}/{name}") for name in written), soft_wrap=True
    )
    if "posterior.nc" not in written:
        out_console.print(
            escape("No posterior.nc: ArviZ is not installed (pip install 'nestedvi[arviz]')."),
            soft_wrap=True,
        )


def _show_posterior(summary: Any, truth: float | None) -> None:
    table = Table(
        title="Posterior",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("site", no_wrap=True)
    for column in summary.rows[0].values:
        table.add_column(column, justify="right")
    shown = summary.rows[:_MOST_ROWS]
    for row in shown:
        table.add_row(escape(row.name), *(f"{value:.4g}" for value in row.values.values()))
    out_console.print(table)
    if len(shown) < len(summary.rows):
        out_console.print(f"… and {len(summary.rows) - len(shown)} more; all are in posterior.json")
    for name, said in summary.facts().items():
        known = f"   (true {truth:.4f})" if name == "log Z" and truth is not None else ""
        out_console.print(f"{name}: {escape(said)}{known}", highlight=False, soft_wrap=True)


def _method_row(name: str, method: Any) -> dict[str, Any]:
    from nestedvi.train.objective import GROUPS

    objective = None if method.objective is None else method.make_objective()
    when = method.resampling.when
    symbols = {"initial": "q₁", "forward": "q", "reverse": "r", "path": "γ"}
    return {
        "id": name,
        "label": method.label,
        "path": method.path,
        "kernels": method.kernels,
        "resampling": when if isinstance(when, str) else f"ESS < {when:.0%}",
        "scheme": type(method.resampling.scheme).__name__.lower(),
        "minimises": (
            ""
            if objective is None
            else ("−log Ẑ" if objective.kind == "bound" else objective.divergence.label)
        ),
        "weights": "" if objective is None else objective.weights,
        "learns": (
            []
            if objective is None
            else [symbols[group] for group in GROUPS if group in objective.learn]
        ),
        "about": method.about,
    }


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _given(**options: Any) -> dict[str, Any]:
    """The options that the user gave; the others keep the configuration's own defaults."""
    return {name: value for name, value in options.items() if value is not None}


def _show_table(out: str) -> None:
    typer.echo(Path(out, "table.md").read_text(encoding="utf-8"))
    typer.echo(f"Wrote {out}/results.json, {out}/table.md and figures")


@reproduce.command()
def annealing(
    methods: Annotated[
        str | None,
        typer.Option(help="Method ids, separated by commas.", show_default="the table's"),
    ] = None,
    levels: Annotated[
        str | None, typer.Option(help="Values of K, separated by commas.", show_default="2,4,6,8")
    ] = None,
    restarts: Annotated[
        int | None, typer.Option(help="Trainings of each cell, side by side.", show_default="10")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Training steps.", show_default="20000")
    ] = None,
    order: Annotated[str | None, typer.Option(help=_ORDERS, show_default="sequential")] = None,
    out: Annotated[
        str, typer.Option(help="Folder for results.json, table.md and the figures.")
    ] = "nestedvi-annealing",
    jobs: Annotated[
        int, typer.Option(help="Cells trained at a time, in processes; 2 suit two cores, 12 a GPU.")
    ] = 1,
    beyond: Annotated[
        bool, typer.Option(help="Also further targets, many levels and training budgets.")
    ] = True,
    quick: Annotated[
        bool, typer.Option("--quick", help="A coarse version of everything, in minutes.")
    ] = False,
    seed: Seed = 0,
) -> None:
    """Section 5.1 of the paper: the annealing table, every figure, many levels, training budgets.

    Ctrl-C saves; the same command goes on with the cell that it was in.
    """
    from nestedvi.paper.annealing.run import AnnealingConfig, quick_config, reproduce_annealing

    given = _given(methods=_names(methods), restarts=restarts, iterations=iterations, order=order)
    if levels is not None:
        given["levels"] = tuple(_positive("K", k) for k in _names(levels) or ())
    config = AnnealingConfig(seed=seed, beyond=beyond, **given)
    if quick:
        config = quick_config(config)
    reproduce_annealing(config, out, jobs=jobs, console=err_console)
    _show_table(out)


@reproduce.command()
def hmm(
    rows: Annotated[
        str | None, typer.Option(help="Rows of the table, separated by commas.", show_default="all")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Training steps of each row.", show_default="5000")
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="sequential or two-phase.", show_default="two-phase")
    ] = None,
    particles: Annotated[
        int | None, typer.Option(help="Particles for each test instance.", show_default="1000")
    ] = None,
    instances: Annotated[
        int | None, typer.Option(help="Test instances.", show_default="2000")
    ] = None,
    out: Annotated[
        str, typer.Option(help="Folder for results.json, table.md and the figures.")
    ] = "nestedvi-hmm",
    jobs: Annotated[
        int, typer.Option(help="Rows trained at a time, in threads; 1 suits a CPU, 4 a GPU.")
    ] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="A coarse version of everything, in minutes.")
    ] = False,
    seed: Seed = 0,
) -> None:
    """Section 5.2 of the paper: learned heuristic factors in a hidden Markov model, against a
    reference log Z.

    Also a linear-Gaussian model against the Kalman filter. Ctrl-C saves; the same command goes on
    with the row that it was in.
    """
    from nestedvi.paper.hmm.config import HMMConfig, quick_hmm_config
    from nestedvi.paper.hmm.run import reproduce_hmm

    given = _given(
        rows=_names(rows),
        iterations=iterations,
        order=order,
        particles=particles,
        test_instances=instances,
    )
    config = HMMConfig(seed=seed, **given)
    if quick:
        config = quick_hmm_config(config)
    reproduce_hmm(config, out, jobs=jobs, console=err_console)
    _show_table(out)


@reproduce.command("bgmm-vae")
def bgmm_vae(
    dataset: Annotated[str, typer.Option(help="mnist, fashion-mnist or both.")] = "both",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Rows of the table, separated by commas.",
            show_default="nvi-printed,nvi,rws-printed,rws",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Trainings of each row, side by side.", show_default="5")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Training steps.", show_default="50000")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help=(
                "Settings to try instead of a row's own, as in rate_rest=5e-3,decay=true; may be"
                " repeated."
            ),
        ),
    ] = None,
    validation: Annotated[
        bool,
        typer.Option(
            "--validation", help="Evaluate on held-out training images, to choose settings."
        ),
    ] = False,
    half: Annotated[
        bool, typer.Option("--half", help="Encoder and decoder compute in bfloat16.")
    ] = False,
    data_dir: Annotated[
        str | None,
        typer.Option(
            help="Folder with the image files.", show_default="$NESTEDVI_DATA, else fetched once"
        ),
    ] = None,
    out: Annotated[
        str, typer.Option(help="Folder for results.json, table.md and the figures.")
    ] = "nestedvi-bgmm-vae",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Small networks, few images and steps: minutes on two cores."),
    ] = False,
    seed: Seed = 0,
) -> None:
    """Section 5.3 of the paper: inferring class proportions of mini-batches of images without
    labels, NVI against RWS.

    Ctrl-C saves; the same command goes on with the row that it was in.
    """
    from nestedvi.paper.bgmm_vae.run import BgmmVaeConfig, quick_config, reproduce_bgmm_vae

    given = _given(methods=_names(methods), seeds=seeds, iterations=iterations)
    if dataset != "both":
        given["datasets"] = (dataset,)
    if change:
        given["variants"] = tuple(change)
    config = BgmmVaeConfig(
        seed=seed, half=half, split="validation" if validation else "test", **given
    )
    if quick:
        config = quick_config(config)
    reproduce_bgmm_vae(config, out, data_dir=data_dir, console=err_console)
    _show_table(out)


def _positive(what: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"{what} must be a whole number; got {text!r}.")
    return int(text)


@bench.command("step")
def bench_step_command(
    method: Annotated[str, typer.Option(help="A method id; see 'nestedvi methods'.")] = "nvir-star",
    levels: Annotated[int, typer.Option(help="K, the number of densities.")] = 8,
    particles: Annotated[int, typer.Option(help="S, the particles at every level.")] = 36,
    order: Annotated[str, typer.Option(help=_ORDERS)] = "sequential",
    steps: Annotated[int, typer.Option(help="Steps in one timed chunk (at most 512).")] = 200,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Time one training step on the ring: median after warm-up, compile time, XLA temporary
    bytes.
    """
    from nestedvi.bench.step import StepBench, bench_step

    result = bench_step(StepBench(method, levels, particles, order, steps, seed=seed))
    if as_json:
        _print_json(result)
        return
    table = Table(
        title=f"{method}, K = {levels}, {particles} particles, {order}",
        show_header=False,
        title_justify="left",
    )
    micro = {name: 1e6 * result[f"step_seconds_{name}"] for name in ("median", "min", "max")}
    table.add_row("step", f"{micro['median']:.0f} µs   ({micro['min']:.0f} … {micro['max']:.0f})")
    table.add_row("compilation", f"{result['compile_seconds']:.2f} s")
    table.add_row("XLA temporaries", f"{result['xla_temp_bytes']:,} bytes")
    table.add_row("parameters", f"{result['parameter_bytes']:,} bytes")
    out_console.print(table)


@bench.command("targets")
def bench_targets_command(
    targets: Annotated[
        str | None,
        typer.Option(
            help="Targets, separated by commas; -rotated turns one.", show_default="all eight"
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="auto, smc, blackjax.", show_default="all three")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Independent runs of each.")] = 10,
    particles: Annotated[int, typer.Option(help="Particles that a run returns.")] = 2000,
    out: Annotated[
        str, typer.Option(help="Folder for targets.json, targets.md and targets.png.")
    ] = "nestedvi-benchmarks",
    seed: Seed = 0,
) -> None:
    """Errors of log Z where it is known: learned, tempered SMC, and BlackJAX's (needs the extras
    mcmc and targets).

    Every target and method is kept when it is done: the same command goes on after Ctrl-C.
    """
    from nestedvi.bench.targets import TargetsConfig, bench_targets

    given = _given(targets=_names(targets), methods=_names(methods))
    bench_targets(
        TargetsConfig(seeds=seeds, particles=particles, seed=seed, **given),
        out,
        console=err_console,
    )
    out_console.print(
        (Path(out) / "targets.md").read_text(encoding="utf-8"), markup=False, highlight=False
    )


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    _say("[yellow]warning:[/yellow]", message)


def _say(label: str, message: Any) -> None:
    """One line on standard error. A message may hold a user's path: its brackets are no markup."""
    err_console.print(f"{label} {escape(str(message))}", highlight=False, soft_wrap=True)


def run() -> None:
    """Entry point: runs the app and turns expected failures into one sentence and an exit code."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", NestedviWarning)
    command = typer.main.get_command(app)
    try:
        # Not `app()`: it would turn Ctrl-C into an exit code of its own and lose the message that
        # says where training stopped.
        with command.make_context(Path(sys.argv[0]).name, sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort) as stop:
        _say("[yellow]Interrupted:[/yellow]", str(stop) or "stopped by Ctrl-C")
        sys.exit(130)
    except (ValueError, OSError, CheckpointError, DensityError, NonFiniteGradientError) as error:
        _say("[red]error:[/red]", error)
        sys.exit(1)
    except UsageError as error:
        error.show()
        sys.exit(error.exit_code)
