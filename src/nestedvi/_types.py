"""Shapes and types used throughout; one file so that axis names stay the same everywhere.

Axes: `levels` (K), `particles` (S), `dim`. A particle is any pytree; the library adds the particle
axis.
"""

from typing import Any, TypeAlias

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

Key: TypeAlias = PRNGKeyArray
Particle: TypeAlias = PyTree[Any]
Scalar: TypeAlias = Float[Array, ""]
LogWeights: TypeAlias = Float[Array, " particles"]
Weights: TypeAlias = Float[Array, " particles"]
Uniforms: TypeAlias = Float[Array, " particles"]
Ancestors: TypeAlias = Int[Array, " particles"]
PerLevel: TypeAlias = Float[Array, " levels"]
Flag: TypeAlias = Bool[Array, ""]
