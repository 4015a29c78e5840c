"""`nestedvi bench`: speed of a training step, errors where log Z is known, the campaign, and other
people's posteriors. It prints; what is measured is `bench`'s.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from nestedvi.cli.options import (
    Json,
    Order,
    Seed,
    configured_by,
    err_console,
    examples,
    given,
    names_in,
    out_console,
    print_json,
)

__all__ = ["bench"]

# Options that several benchmarks have.
Methods = Annotated[str | None, typer.Option(help="Ways of answering, separated by commas.")]
Seeds = Annotated[int | None, typer.Option(help="Independent runs of each.")]
Particles = Annotated[int | None, typer.Option(help="Particles that a run returns.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes at a time, a core each.")]

bench = typer.Typer(
    help="Measure speed, memory and errors.",
    no_args_is_help=True,
    epilog=examples("nestedvi bench step", "nestedvi bench targets"),
)


@bench.command(
    cls=configured_by("nestedvi.bench.step:StepBench"),
    epilog=examples("nestedvi bench step --levels 32 --order level-parallel --json"),
)
def step(
    method: Annotated[str | None, typer.Option(help="A method id; see 'nestedvi methods'.")] = None,
    levels: Annotated[int | None, typer.Option(help="K, the number of densities.")] = None,
    particles: Annotated[int | None, typer.Option(help="S, the particles at every level.")] = None,
    order: Order = None,
    steps: Annotated[int | None, typer.Option(help="Steps in one timed chunk.")] = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Time one training step on the ring: median after warm-up, compile time, XLA temporary
    bytes.
    """
    from nestedvi.bench.step import StepBench, bench_step

    sizes = given(levels=levels, particles=particles, steps=steps)
    config = StepBench(**given(method=method, order=order, seed=seed), **sizes)
    result = bench_step(config)
    if as_json:
        print_json(result)
        return
    out_console.print(_step_table(config, result))


def _step_table(config: Any, result: dict[str, Any]) -> Table:
    title = f"{config.method}, K = {config.levels}, {config.particles} particles, {config.order}"
    table = Table(title=title, show_header=False, title_justify="left")
    micro = {name: 1e6 * result[f"step_seconds_{name}"] for name in ("median", "min", "max")}
    table.add_row("step", f"{micro['median']:.0f} µs   ({micro['min']:.0f} … {micro['max']:.0f})")
    table.add_row("compilation", f"{result['compile_seconds']:.2f} s")
    table.add_row("XLA temporaries", f"{result['xla_temp_bytes']:,} bytes")
    table.add_row("parameters", f"{result['parameter_bytes']:,} bytes")
    return table


def _print_page(out: str, name: str) -> None:
    """The table that a benchmark has written, as it stands in its file."""
    page = (Path(out) / name).read_text(encoding="utf-8")
    out_console.print(page, markup=False, highlight=False)


@bench.command(
    cls=configured_by("nestedvi.bench.targets:TargetsConfig"),
    epilog=examples("nestedvi bench targets --targets ring,funnel --methods smc --seeds 2"),
)
def targets(
    targets: Annotated[
        str | None, typer.Option(help="Targets, separated by commas; -rotated turns one.")
    ] = None,
    methods: Methods = None,
    seeds: Seeds = None,
    particles: Particles = None,
    out: Annotated[
        str, typer.Option(help="Folder for targets.json, targets.md and targets.png.")
    ] = "nestedvi-benchmarks",
    seed: Seed = None,
) -> None:
    """Errors of log Z where it is known: learned, tempered SMC, and BlackJAX's (needs the extras
    mcmc and targets).

    Every target and method is kept when it is done: the same command goes on after Ctrl-C.
    """
    from nestedvi.bench.targets import TargetsConfig, bench_targets

    sizes = given(seeds=seeds, particles=particles, seed=seed)
    config = TargetsConfig(**given(targets=names_in(targets), methods=names_in(methods)), **sizes)
    bench_targets(config, out, console=err_console)
    _print_page(out, "targets.md")


@bench.command(
    cls=configured_by("nestedvi.bench.campaign.run:CampaignConfig"),
    epilog=examples("nestedvi bench campaign --targets banana,funnel --seeds 2 --jobs 2"),
)
def campaign(
    targets: Annotated[
        str | None, typer.Option(help="Targets, separated by commas.", show_default="all")
    ] = None,
    methods: Methods = None,
    seeds: Seeds = None,
    particles: Particles = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes side by side, one thread each.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="After so many, no new run begins.", show_default="no end")
    ] = None,
    out: Annotated[
        str, typer.Option(help="Folder for campaign.json and campaign.md.")
    ] = "nestedvi-campaign",
    seed: Seed = None,
) -> None:
    """Is every answer right, or says that it is not? Many targets with a known log Z.

    Every run is kept when it is done: the same command goes on after Ctrl-C.
    """
    from nestedvi.bench.campaign.run import CampaignConfig, run_campaign

    sizes = given(seeds=seeds, particles=particles, jobs=jobs, minutes=minutes, seed=seed)
    config = CampaignConfig(**given(targets=names_in(targets), methods=names_in(methods)), **sizes)
    run_campaign(config, out, console=err_console)
    _print_page(out, "campaign.md")


@bench.command(
    cls=configured_by("nestedvi.bench.posteriordb.run:PosteriordbConfig"),
    epilog=examples("nestedvi bench posteriordb --posteriors arK-arK,garch-garch11"),
)
def posteriordb(
    posteriors: Annotated[
        str | None, typer.Option(help="Posteriors, separated by commas; all unless given.")
    ] = None,
    limit: Annotated[
        float | None, typer.Option(help="Seconds that one posterior may take.")
    ] = None,
    within: Annotated[float | None, typer.Option(help="Seconds that all may take.")] = None,
    jobs: Jobs = 1,
    data_dir: Annotated[
        str | None,
        typer.Option(help="Folder with references.json and data.", show_default="$NESTEDVI_DATA"),
    ] = None,
    out: Annotated[
        str, typer.Option(help="Folder for posteriordb.json, posteriordb.md and posteriordb.png.")
    ] = "nestedvi-benchmarks",
    seed: Seed = None,
) -> None:
    """Other people's models: posteriors of posteriordb with the defaults, beside their reference
    draws.

    Every answer is kept when it is done: the same command goes on after Ctrl-C or a limit.
    """
    from nestedvi.bench.posteriordb.run import PosteriordbConfig, bench_posteriordb

    options = given(posteriors=names_in(posteriors), limit=limit, within=within, seed=seed)
    config = PosteriordbConfig(**options)
    bench_posteriordb(config, out, data_dir=data_dir, jobs=jobs, console=err_console)
    _print_page(out, "posteriordb.md")


@bench.command(
    cls=configured_by("nestedvi.bench.evidences:EvidencesConfig"),
    epilog=examples("nestedvi bench evidences --problems seeds,brownian --draws 20000"),
)
def evidences(
    problems: Annotated[
        str | None,
        typer.Option(
            help="Posteriors or targets, separated by commas; unless given, all posteriors with"
            " proper priors and all targets without a closed form or quadrature."
        ),
    ] = None,
    draws: Annotated[int | None, typer.Option(help="Draws of each of NUTS' four chains.")] = None,
    stderr: Annotated[
        float | None,
        typer.Option(help="A way answers again until its mean has this standard error."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="The most answers of one way to one problem.")
    ] = None,
    limit: Annotated[
        float | None, typer.Option(help="Seconds that one way of one problem may take.")
    ] = None,
    within: Annotated[float | None, typer.Option(help="Seconds that all may take.")] = None,
    jobs: Jobs = 1,
    data_dir: Annotated[
        str | None,
        typer.Option(help="Folder with posteriordb's data.", show_default="$NESTEDVI_DATA"),
    ] = None,
    out: Annotated[
        str, typer.Option(help="Folder for evidences.json and evidences.md.")
    ] = "nestedvi-benchmarks",
    seed: Seed = None,
) -> None:
    """log Z in two independent ways: sample's, and bridge sampling from draws of NUTS.

    Every answer is kept when it is done: the same command goes on after Ctrl-C or a limit.
    """
    from nestedvi.bench.evidences import EvidencesConfig, bench_evidences

    sizes = given(draws=draws, stderr=stderr, repeats=repeats)
    sizes |= given(limit=limit, within=within, seed=seed)
    config = EvidencesConfig(**given(problems=names_in(problems)), **sizes)
    bench_evidences(config, out, data_dir=data_dir, jobs=jobs, console=err_console)
    _print_page(out, "evidences.md")
