"""Errors can be caught by what they are, and a wrong name comes with the nearest right one."""

import pytest

from nestedvi import errors


@pytest.mark.parametrize(
    ("name", "hint"),
    [("sistematic", " Did you mean 'systematic'?"), ("xyzzy", "")],
)
def test_an_unknown_name(name, hint):
    """The hint only where something is near; the list always, sorted."""
    error = errors.UnknownNameError("scheme", name, ["systematic", "multinomial"])
    assert str(error) == f"Unknown scheme {name!r}.{hint} Known: multinomial, systematic."
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("DensityError", FloatingPointError),
        ("NonFiniteGradientError", FloatingPointError),
        ("MissingScoreError", TypeError),
        ("CheckpointError", RuntimeError),
        ("DataError", OSError),
        ("ModelError", ValueError),
        ("ModelCallError", ValueError),
        ("NestedviWarning", UserWarning),
    ],
)
def test_errors_are_of_a_built_in_kind(error, kind):
    """Code that knows nothing of this library catches them."""
    with pytest.raises(kind, match="why"):
        raise getattr(errors, error)("why")


def test_every_error_is_listed():
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert defined == set(errors.__all__)
