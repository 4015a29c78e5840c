"""Learn to sample eight modes on a circle, and check log Ẑ against the truth, log 8. About ten
seconds.

python examples/ring.py --steps 5000
"""

import argparse

import jax
import jax.numpy as jnp

import nestedvi as nvi

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=5_000)
args = parser.parse_args()

key_build, key_fit, key_eval = jax.random.split(jax.random.key(0), 3)
initial = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
sampler, objective = nvi.build(
    key_build, "nvir-star", target=nvi.targets.ring(), initial=initial, num_levels=8
)
trained = nvi.fit(
    key_fit, sampler, objective, num_steps=args.steps, num_particles=36, progress=True
).sampler
quality = nvi.evaluate(key_eval, trained)
print(
    f"log Z = {quality.log_Z:.3f} ± {quality.log_Z_stderr:.3f} (true {jnp.log(8.0):.3f}), ESS"
    f" {quality.ess_percent:.0f} %"
)
print("learned schedule:", jnp.round(trained.path.thetas(), 3))
