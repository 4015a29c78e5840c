"""Operations and memory traffic of one BGMM-VAE training step per image, as XLA counts them for the
machine that this runs on.

Run as: python benchmarks/bgmm_cost.py. It trains nothing; the compiled gradient's own count is
written to results/bench/.
"""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp

from nestedvi.paper.bgmm_vae.cells import cells_of
from nestedvi.paper.bgmm_vae.config import BgmmVaeConfig
from nestedvi.paper.bgmm_vae.training import build_models, unstack
from nestedvi.storage.files import output_folder, provenance, write_json

_SIZE = 28
_OUT = Path(__file__).parent.parent / "results" / "bench"


def cost_per_image(method: str) -> dict[str, float | str]:
    """Floating-point operations and bytes of one seed's gradient, divided by the images that it
    sees.
    """
    config = BgmmVaeConfig(datasets=("mnist",), methods=(method,))
    cell = next(cells_of(config))
    model = unstack(build_models(jax.random.key(0), cell, _SIZE, 1))[0]
    objective = cell.settings.make_objective()
    params, static = eqx.partition(model, eqx.is_inexact_array)
    x = jnp.zeros((config.num_batches, config.batch_size, _SIZE, _SIZE))

    def gradient(params, key, x):
        return jax.grad(lambda p: objective.surrogate(key, eqx.combine(p, static), x)[0])(params)

    count = jax.jit(gradient).lower(params, jax.random.key(0), x).compile().cost_analysis()
    images = config.num_batches * config.batch_size
    return {
        "method": method,
        "operations": count["flops"] / images,
        "bytes": count["bytes accessed"] / images,
    }


if __name__ == "__main__":
    rows = [cost_per_image(method) for method in ("nvi", "rws")]
    write_json(output_folder(_OUT) / "bgmm-cost.json", {"rows": rows, **provenance(0)})
    for row in rows:
        print(
            f"{row['method']}: {row['operations'] / 1e6:.0f} million operations and"
            f" {row['bytes'] / 1e6:.1f} MB an image"
        )
