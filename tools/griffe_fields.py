"""For the API pages: a class without a constructor of its own is called with its fields.

Equinox modules and named tuples are such classes. Documentation is read from the source without
running it, so their constructors have to be put together here, types and shapes included.
"""

import re
from typing import Any

import griffe


class FieldsAsParameters(griffe.Extension):
    """Gives a class with annotated fields and no `__init__` the one that Python makes for it."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called when the members of a class are known."""
        fields = [
            member
            for member in cls.members.values()
            if member.is_attribute
            and member.annotation is not None
            and "property" not in member.labels
            and not member.name.startswith("_")
        ]
        if "__init__" in cls.members or not fields:
            return
        parameters = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
        for field in fields:
            parameters.append(
                griffe.Parameter(
                    field.name,
                    annotation=field.annotation,
                    kind=griffe.ParameterKind.positional_or_keyword,
                    default=_default(field.value),
                )
            )
        init = griffe.Function("__init__", parameters=griffe.Parameters(*parameters))
        init.parent = cls
        cls.set_member("__init__", init)


def _default(value: Any) -> str | None:
    """What a field is without an argument; `eqx.field(default=1)` holds it inside."""
    if value is None:
        return None
    text = str(value)
    if "field(" in text:
        inside = re.search(r"default=([^,)]+)", text)
        return inside[1] if inside else None
    return text
