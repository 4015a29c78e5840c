"""The command `nestedvi`: its groups of commands and its entry point. Every error a user can cause
ends in one sentence on standard error and a non-zero exit code. What commands do is not known here.
"""

import os
import sys
import traceback
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import nestedvi
from nestedvi.cli.bench import bench
from nestedvi.cli.catalogue import methods, targets
from nestedvi.cli.demo import demo
from nestedvi.cli.doctor import doctor
from nestedvi.cli.options import configured_by, err_console, examples, out_console
from nestedvi.cli.reproduce import reproduce
from nestedvi.cli.sample import sample
from nestedvi.errors import (
    CheckpointError,
    DensityError,
    LostProcessError,
    NestedviWarning,
    NonFiniteGradientError,
)
from nestedvi.interrupts import leave, listen

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


_DISTRIBUTED = "--distributed"


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"nestedvi {nestedvi.__version__}")
        raise typer.Exit


@app.callback()
def _whole(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", callback=_show_version),
    ] = False,
    distributed: Annotated[
        bool,
        typer.Option(
            _DISTRIBUTED,
            help="This is one of several processes that sample together; may stand anywhere.",
        ),
    ] = False,
) -> None:
    _join_others(context, distributed)


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


def _join_others(context: typer.Context, asked: bool) -> None:
    if not asked:
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
    """The end of another of several processes becomes an error of one sentence."""
    if _DISTRIBUTED not in sys.argv:
        return nullcontext()
    from nestedvi.distributed import one_sentence_if_lost

    return one_sentence_if_lost("Start all processes again.")


# What a shell sets when it asks for completions.
COMPLETE = "_NESTEDVI_COMPLETE"

# Click's class under any version of typer, some of which bring a click of their own.
UsageError: Any = typer.BadParameter.__base__
# Errors whose message is written for the user.
_EXPECTED = (ValueError, OSError, CheckpointError, DensityError, NonFiniteGradientError)
_TRACEBACK, _MOST = "NESTEDVI_TRACEBACK", 400


def _print_line(label: str, message: Any) -> None:
    """One line on standard error. A message may hold a user's path: its brackets are no markup."""
    err_console.print(f"{label} {escape(str(message))}", highlight=False, soft_wrap=True)


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    _print_line("[yellow]warning:[/yellow]", message)


def _program() -> str:
    """The command as help shows it: as it was typed."""
    name = Path(sys.argv[0]).name
    return "python -m nestedvi" if name == "__main__.py" else name


def _print_interrupted(message: str) -> None:
    # A display that is torn down with its process leaves the cursor hidden.
    err_console.show_cursor(True)
    _print_line("[yellow]Interrupted:[/yellow]", message)


def _print_unexpected(error: Exception) -> None:
    """An error that nobody foresaw, in one line; where it came from is there for who asks."""
    if os.environ.get(_TRACEBACK):
        traceback.print_exc()
    text = " ".join(str(error).split())
    text = text if len(text) <= _MOST else text[:_MOST] + "…"
    _print_line(
        "[red]error:[/red]",
        f"{type(error).__name__}: {text or 'no message'} (set {_TRACEBACK}=1 to see where)",
    )


def run() -> None:
    """Entry point: runs the app and turns every failure into one sentence and an exit code."""
    if COMPLETE in os.environ:
        app(prog_name="nestedvi")  # a shell asks for the words that may come next; it exits
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", NestedviWarning)
    with listen(_print_interrupted):
        try:
            code = _run_command()
        except (KeyboardInterrupt, typer.Abort) as stop:
            # At once: an interpreter that tidies up after an interrupt inside of JAX may crash.
            leave(_print_interrupted, str(stop) or "stopped by Ctrl-C")
    sys.exit(code)


def _run_command() -> int:
    command = typer.main.get_command(app)
    try:
        # Not `app()`: it would turn Ctrl-C into an exit code of its own and lose the message that
        # says where training stopped.
        # And `--distributed` may stand anywhere, as launchers append it.
        arguments = sorted(sys.argv[1:], key=lambda argument: argument != _DISTRIBUTED)
        with command.make_context(_program(), arguments) as context, _together():
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except LostProcessError as error:
        # Whoever is left says so.
        err_console.quiet = False
        _print_line("[red]error:[/red]", error)
        if _DISTRIBUTED in sys.argv:
            # Not by way of JAX's goodbye to the others, which waits for the lost one.
            os._exit(1)
        return 1
    except UsageError as error:
        error.show()
        return error.exit_code
    except Exception as error:
        if isinstance(error, _EXPECTED) or _raised_by_nestedvi(error):
            _print_line("[red]error:[/red]", " ".join(str(error).split()) or type(error).__name__)
        else:
            _print_unexpected(error)
        return 1
    return 0


def _raised_by_nestedvi(error: Exception) -> bool:
    """Whether this package raised it, in words of its own."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return str(frames[-1][0].f_globals.get("__name__", "")).startswith("nestedvi.")
