"""A sampler written down as a program, then trained: propose, resample, learn a move, finish with
MCMC.

python examples/program.py --steps 2000
"""

import argparse

import jax
import jax.numpy as jnp

import nestedvi as nvi

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=2_000)
args = parser.parse_args()

key_f, key_r, key_fit, key_eval = jax.random.split(jax.random.key(0), 4)
target = nvi.densities.GaussianMixture([[-3.0], [3.0]], variance=0.25)
bridge = nvi.Density(lambda z: 0.3 * target.log_gamma(z))
program = nvi.compose(
    nvi.propose(nvi.DiagonalNormal(jnp.zeros(1), 3.0), bridge),
    nvi.resample("residual", when=0.5),
    nvi.propose((nvi.ResidualGaussian(1, key=key_f), nvi.ResidualGaussian(1, key=key_r)), target),
    nvi.propose(nvi.RandomWalk(jnp.full(1, 0.5), steps=5), target),
)
before = nvi.evaluate(key_eval, program, num_particles=500)
trained = nvi.fit(key_fit, program, num_steps=args.steps, num_particles=64, progress=True).sampler
after = nvi.evaluate(key_eval, trained, num_particles=500)
for name, quality in (("before", before), ("after", after)):
    print(
        f"{name}: log Z = {quality.log_Z:.3f} ± {quality.log_Z_stderr:.3f} (true 0), ESS"
        f" {quality.ess_percent:.0f} %"
    )
