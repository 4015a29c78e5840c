"""`nestedvi methods` and `nestedvi targets`: the two tables that the library is built from,
printed. Nothing is built here.
"""

from typing import Any

from nestedvi.cli.options import Json, out_console, print_json, table_with_head

__all__ = ["methods", "targets"]

_SYMBOLS = {"initial": "q₁", "forward": "q", "reverse": "r", "path": "γ"}


def methods(as_json: Json = False) -> None:
    """Print what --method takes: ways of answering, and rows of the methods table."""
    from nestedvi.inference.sample import ABOUT, ANSWERS
    from nestedvi.methods import METHODS

    ways = [{"id": name, "about": ABOUT[name]} for name in ANSWERS]
    rows = [_method_row(name, method) for name, method in METHODS.items()]
    if as_json:
        print_json({"ways": ways, "rows": rows})
        return
    table = table_with_head("Ways of answering: need no tuning")
    table.add_column("id", no_wrap=True)
    table.add_column("about")
    for way in ways:
        table.add_row(way["id"], way["about"])
    out_console.print(table)
    table = table_with_head("Methods: samplers to train (--json says more)")
    columns = ("id", "path", "kernels", "resampling", "minimises", "learns")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(
            *(" ".join(x) if isinstance(x, list) else str(x) for x in (row[c] for c in columns))
        )
    out_console.print(table)


def _method_row(name: str, method: Any) -> dict[str, Any]:
    from nestedvi.train.objective import GROUPS

    when = method.resampling.when
    row = {
        "id": name,
        "label": method.label,
        "path": method.path,
        "kernels": method.kernels,
        "resampling": when if isinstance(when, str) else f"ESS < {when:.0%}",
        "scheme": type(method.resampling.scheme).__name__.lower(),
        "minimises": "",
        "weights": "",
        "learns": [],
        "about": method.about,
    }
    if method.objective is not None:
        objective = method.make_objective()
        bound = objective.kind == "bound"
        row["minimises"] = "−log Ẑ" if bound else objective.divergence.label
        row["weights"] = objective.weights
        row["learns"] = [_SYMBOLS[group] for group in GROUPS if group in objective.learn]
    return row


def targets(as_json: Json = False) -> None:
    """Print the built-in targets: dimension, log Z and where that number comes from; then the
    evidences of posteriordb's posteriors.
    """
    from nestedvi.targets import EVIDENCES, TARGETS

    columns = ("dim", "log_Z", "source", "about")
    rows = [
        {"id": name, **{column: getattr(target, column) for column in columns}}
        for name, target in TARGETS.items()
    ]
    posteriors = [
        {"id": name, "log_Z": evidence.log_Z, "stderr": evidence.stderr}
        for name, evidence in EVIDENCES.items()
        if name not in TARGETS
    ]
    if as_json:
        print_json({"rows": rows, "posteriors": posteriors})
        return
    table = table_with_head("Targets")
    for column in ("id", "dim", "log Z", "source", "about"):
        table.add_column(
            column,
            no_wrap=column in ("id", "log Z"),
            justify="right" if column in ("dim", "log Z") else "left",
        )
    for row in rows:
        log_Z = "–" if row["log_Z"] is None else f"{row['log_Z']:.6g}"
        table.add_row(row["id"], str(row["dim"]), log_Z, row["source"], row["about"])
    out_console.print(table)
    if posteriors:
        out_console.print(_posteriors_table(posteriors))


def _posteriors_table(posteriors: list[dict[str, Any]]) -> Any:
    table = table_with_head("Posteriors of posteriordb: auto and bridge sampling")
    for column in ("id", "log Z", "stderr"):
        table.add_column(column, no_wrap=True, justify="left" if column == "id" else "right")
    for row in posteriors:
        table.add_row(row["id"], f"{row['log_Z']:.6g}", f"{row['stderr']:.2g}")
    return table
