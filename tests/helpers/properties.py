"""Hypothesis, or stand-ins that skip what needs it: the other tests of a module run without it."""

import inspect

import pytest

try:
    import hypothesis.extra.numpy as hnp
    import hypothesis.strategies as st
    from hypothesis import HealthCheck, given, settings
except ImportError:

    class _Anything:
        """Whatever is asked of it, or done with it, is one more."""

        def __getattr__(self, name):
            return self

        def __call__(self, *args, **options):
            return self

    hnp = st = HealthCheck = _Anything()

    def given(**drawn):
        """A test that is skipped, with the parameters that something else gives it."""

        def skip(test):
            def never(**parameters):
                raise AssertionError("skipped")

            rest = [p for p in inspect.signature(test).parameters.values() if p.name not in drawn]
            never.__name__, never.__doc__ = test.__name__, test.__doc__
            never.__signature__ = inspect.Signature(rest)
            never.pytestmark = list(getattr(test, "pytestmark", []))
            return pytest.mark.skip(reason="needs hypothesis")(never)

        return skip

    def settings(**options):
        return lambda test: test


__all__ = ["HealthCheck", "given", "hnp", "settings", "st"]
