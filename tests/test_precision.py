"""Full precision inside, the user's own setting outside."""

import jax

from nestedvi.precision import in_full_precision


def test_the_setting_lasts_as_long_as_the_call():
    before = jax.config.jax_default_matmul_precision

    @in_full_precision
    def inside(x):
        """What it says."""
        return x, jax.config.jax_default_matmul_precision

    assert inside(3) == (3, "highest") and inside.__doc__ == "What it says."
    assert jax.config.jax_default_matmul_precision == before
