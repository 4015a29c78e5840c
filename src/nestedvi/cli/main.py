"""The command `nestedvi`: its groups of commands and its entry point. Every error a user can cause
ends in one sentence on standard error and a non-zero exit code. What commands do is not known here.
"""

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import nestedvi
from nestedvi.cli.bench import bench
from nestedvi.cli.catalogue import methods, targets
from nestedvi.cli.demo import demo
from nestedvi.cli.doctor import doctor
from nestedvi.cli.options import configured_by, err_console, examples
from nestedvi.cli.reproduce import reproduce
from nestedvi.cli.sample import sample
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
    epilog="nestedvi COMMAND --help has an example of each.",
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"nestedvi {nestedvi.__version__}")
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", callback=_show_version),
    ] = False,
) -> None:
    pass


app.command(
    cls=configured_by("nestedvi.paper.annealing.demo:DemoConfig"),
    epilog=examples("nestedvi demo", "nestedvi demo --steps 500 --out quick-demo"),
)(demo)
app.command(epilog=examples("nestedvi methods", "nestedvi methods --json"))(methods)
app.command(epilog=examples("nestedvi targets"))(targets)
app.command(epilog=examples("nestedvi doctor", "nestedvi doctor --json"))(doctor)
# What the configuration leaves open is a default of the function.
app.command(
    cls=configured_by(
        "nestedvi.inference.own_model:OwnModelConfig", "nestedvi.inference.sample:sample"
    ),
    epilog=examples(
        "nestedvi sample model.py:line --data data.csv",
        "nestedvi sample model.py:log_density --dim 3 --method smc",
        "nestedvi sample funnel",
    ),
)(sample)
app.add_typer(bench, name="bench")
app.add_typer(reproduce, name="reproduce")

# What a shell sets when it asks for completions.
COMPLETE = "_NESTEDVI_COMPLETE"

# Click's class under any version of typer, some of which bring a click of their own.
UsageError: Any = typer.BadParameter.__base__


def _print_line(label: str, message: Any) -> None:
    """One line on standard error. A message may hold a user's path: its brackets are no markup."""
    err_console.print(f"{label} {escape(str(message))}", highlight=False, soft_wrap=True)


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    _print_line("[yellow]warning:[/yellow]", message)


def _program() -> str:
    """The command as help shows it: as it was typed."""
    name = Path(sys.argv[0]).name
    return "python -m nestedvi" if name == "__main__.py" else name


def run() -> None:
    """Entry point: runs the app and turns expected failures into one sentence and an exit code."""
    if COMPLETE in os.environ:
        app(prog_name="nestedvi")  # a shell asks for the words that may come next; it exits
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", NestedviWarning)
    command = typer.main.get_command(app)
    try:
        # Not `app()`: it would turn Ctrl-C into an exit code of its own and lose the message that
        # says where training stopped.
        with command.make_context(_program(), sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort) as stop:
        _print_line("[yellow]Interrupted:[/yellow]", str(stop) or "stopped by Ctrl-C")
        sys.exit(130)
    except (ValueError, OSError, CheckpointError, DensityError, NonFiniteGradientError) as error:
        _print_line("[red]error:[/red]", error)
        sys.exit(1)
    except UsageError as error:
        error.show()
        sys.exit(error.exit_code)
