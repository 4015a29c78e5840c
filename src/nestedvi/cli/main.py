"""The command `nestedvi`: its groups of commands and its entry point. Every error a user can cause
ends in one sentence on standard error and a non-zero exit code. What commands do is not known here.
"""

import os
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nestedvi.cli.bench import bench
from nestedvi.cli.catalogue import methods, targets
from nestedvi.cli.demo import demo
from nestedvi.cli.options import configured_by, err_console, out_console
from nestedvi.cli.reproduce import reproduce
from nestedvi.cli.sample import sample
from nestedvi.errors import (
    CheckpointError,
    DensityError,
    LostProcessError,
    NestedviWarning,
    NonFiniteGradientError,
)

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
app.command(cls=configured_by("nestedvi.paper.annealing.demo:DemoConfig"))(demo)
app.command()(methods)
app.command()(targets)
# What the configuration leaves open is a default of the function.
app.command(
    cls=configured_by(
        "nestedvi.inference.own_model:OwnModelConfig", "nestedvi.inference.sample:sample"
    )
)(sample)
app.add_typer(bench, name="bench")
app.add_typer(reproduce, name="reproduce")

_DISTRIBUTED = "--distributed"


@app.callback()
def main(
    context: typer.Context,
    distributed: Annotated[
        bool,
        typer.Option(
            _DISTRIBUTED,
            help="This is one of several processes that sample together; may stand anywhere.",
        ),
    ] = False,
) -> None:
    if not distributed:
        return
    if context.invoked_subcommand != "sample":
        raise ValueError(
            f"{_DISTRIBUTED} is for 'nestedvi sample'; got {context.invoked_subcommand!r}."
            " Experiments use several GPUs of one machine with --jobs."
        )
    from nestedvi.distributed import is_first, start

    start()
    if not is_first():
        out_console.quiet = err_console.quiet = True
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)


def _together() -> AbstractContextManager[None]:
    """Of several processes, the end of another is said in a sentence."""
    if _DISTRIBUTED not in sys.argv:
        return nullcontext()
    from nestedvi.distributed import one_sentence_if_lost

    return one_sentence_if_lost("Start all processes again.")


# Click's class under any version of typer, some of which bring a click of their own.
UsageError: Any = typer.BadParameter.__base__


def _print_line(label: str, message: Any) -> None:
    """One line on standard error. A message may hold a user's path: its brackets are no markup."""
    err_console.print(f"{label} {escape(str(message))}", highlight=False, soft_wrap=True)


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    _print_line("[yellow]warning:[/yellow]", message)


def run() -> None:
    """Entry point: runs the app and turns expected failures into one sentence and an exit code."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", NestedviWarning)
    command = typer.main.get_command(app)
    try:
        # Not `app()`: it would turn Ctrl-C into an exit code of its own and lose the message that
        # says where training stopped.
        # And `--distributed` may stand anywhere, as launchers append it.
        arguments = sorted(sys.argv[1:], key=lambda argument: argument != _DISTRIBUTED)
        with command.make_context(Path(sys.argv[0]).name, arguments) as context, _together():
            command.invoke(context)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort) as stop:
        _print_line("[yellow]Interrupted:[/yellow]", str(stop) or "stopped by Ctrl-C")
        sys.exit(130)
    except LostProcessError as error:
        # Whoever is left says so.
        err_console.quiet = False
        _print_line("[red]error:[/red]", error)
        if _DISTRIBUTED in sys.argv:
            # Not by way of JAX's goodbye to the others, which waits for the lost one.
            os._exit(1)
        sys.exit(1)
    except (ValueError, OSError, CheckpointError, DensityError, NonFiniteGradientError) as error:
        _print_line("[red]error:[/red]", error)
        sys.exit(1)
    except UsageError as error:
        error.show()
        sys.exit(error.exit_code)
