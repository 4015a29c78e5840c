"""Training-step time and memory side by side with coix (`pip install coix`), in one run, as ratios.

    python benchmarks/vs_coix.py --out results/bench

The same task for both: the ring of eight modes, residual Gaussian kernels with 50 hidden units,
Adam 1e-3. coix is timed in its own training loop (`coix.util.train`) and with its loss inside
`lax.scan`. Rounds alternate between the contenders, so that a busy machine slows all of them; the
reported ratio is the median over rounds of the ratio within a round.
"""

import argparse
import contextlib
import io
import statistics
import time
from functools import partial
from pathlib import Path

import coix
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax

import nestedvi as nvi
from nestedvi.storage.files import output_folder, provenance, write_json, write_text
from nestedvi.train.fit import Trainer

HIDDEN = 50


def coix_params(key, num_levels):
    """Stacked kernels like ours: random hidden layer, output layers at zero, unit noise; a monotone
    schedule.
    """

    def kernels(key):
        weight, bias = jax.random.split(key)
        shape = num_levels - 1
        return {
            "w": jax.random.normal(weight, (shape, 2, HIDDEN)) / 2**0.5,
            "b": jax.random.normal(bias, (shape, HIDDEN)),
            "mu": jnp.zeros((shape, HIDDEN, 2)),
            "mu_b": jnp.zeros((shape, 2)),
            "sigma": jnp.zeros((shape, HIDDEN, 2)),
            "sigma_b": jnp.full((shape, 2), 0.5413),
        }

    forward, reverse = jax.random.split(key)
    return {
        "forward": kernels(forward),
        "reverse": kernels(reverse),
        "logits": jnp.zeros(num_levels - 1),
    }


def coix_program(params, method, num_levels, num_particles, unroll):
    """NVIR* (learned schedule) or AVO (linear) as a coix program."""
    if method == "nvir-star":
        betas = jnp.concatenate(
            [jnp.zeros(1), jnp.cumsum(jax.nn.softmax(params["logits"]))[:-1], jnp.ones(1)]
        )
    else:
        betas = jnp.linspace(0.0, 1.0, num_levels)
    modes = nvi.targets.ring_modes()

    def net(p, k, x):
        p = jax.tree.map(lambda a: a[k], p)
        h = jax.nn.relu(x @ p["w"] + p["b"])
        return x + h @ p["mu"] + p["mu_b"], jax.nn.softplus(h @ p["sigma"] + p["sigma_b"])

    def target(k):
        x = numpyro.sample("x", dist.Normal(0, 5).expand([2]).mask(False).to_event())
        ring = jax.nn.logsumexp(dist.Normal(modes, 0.5**0.5).log_prob(x[..., None, :]).sum(-1), -1)
        base = dist.Normal(0, 5).log_prob(x).sum(-1)
        numpyro.sample("gamma", dist.Unit(betas[k] * ring + (1 - betas[k]) * base))
        return ({"x": x},)

    def kernel(which, k, inputs):
        return numpyro.sample("x", dist.Normal(*net(params[which], k, inputs["x"])).to_event(1))

    def plate(fn):
        return numpyro.plate("particle", num_particles, dim=-1)(fn)

    def targets(k):
        return plate(partial(target, k))

    def forwards(k):
        return plate(partial(kernel, "forward", k))

    def reverses(k):
        return plate(partial(kernel, "reverse", k))

    if unroll:
        targets = [targets(k) for k in range(num_levels)]
        forwards = [forwards(k) for k in range(num_levels - 1)]
        reverses = [reverses(k) for k in range(num_levels - 1)]
    algorithm = coix.algo.nvi_rkl if method == "nvir-star" else coix.algo.nvi_avo
    return algorithm(targets, forwards, reverses, num_targets=num_levels)


def coix_loss(params, key, method, num_levels, num_particles, unroll=False):
    program = coix_program(params, method, num_levels, num_particles, unroll)
    _, _, metrics = coix.traced_evaluate(program, seed=key)()
    return metrics["loss"], {"loss": metrics["loss"], "log_Z": metrics["log_Z"]}


class CoixLoop:
    """coix's own loop: one jitted step called from Python."""

    def __init__(self, method, levels, particles, steps):
        self.loss = partial(coix_loss, method=method, num_levels=levels, num_particles=particles)
        self.params, self.steps, self.optimiser = (
            coix_params(jax.random.key(0), levels),
            steps,
            optax.adam(1e-3),
        )
        self.jitted = None
        began = time.perf_counter()
        self._train(1)
        self.compile_seconds = time.perf_counter() - began

    def _train(self, steps):
        def jit_once(fn):
            if self.jitted is None:
                self.jitted = jax.jit(fn)
            return self.jitted

        with contextlib.redirect_stdout(io.StringIO()):
            result = coix.util.train(
                self.loss, self.params, self.optimiser, steps, jit_compile=jit_once, log_every=10**9
            )
        jax.block_until_ready(result)

    def time(self):
        began = time.perf_counter()
        self._train(self.steps)
        return (time.perf_counter() - began) / self.steps


class CoixScan:
    """coix's loss with the loop moved into `lax.scan`."""

    def __init__(self, method, levels, particles, steps):
        loss = partial(coix_loss, method=method, num_levels=levels, num_particles=particles)
        optimiser, params = optax.adam(1e-3), coix_params(jax.random.key(0), levels)

        def step(carry, key):
            params, state = carry
            (_, metrics), grads = jax.value_and_grad(loss, has_aux=True)(params, key)
            updates, state = optimiser.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), metrics["log_Z"]

        self.carry, self.keys, self.steps = (
            (params, optimiser.init(params)),
            jax.random.split(jax.random.PRNGKey(1), steps),
            steps,
        )
        began = time.perf_counter()
        self.compiled = (
            jax.jit(lambda carry, keys: jax.lax.scan(step, carry, keys))
            .lower(self.carry, self.keys)
            .compile()
        )
        self.compile_seconds = time.perf_counter() - began

    def time(self):
        began = time.perf_counter()
        jax.block_until_ready(self.compiled(self.carry, self.keys))
        return (time.perf_counter() - began) / self.steps


class Ours:
    """nestedvi's training loop, as `nvi.fit` runs it."""

    def __init__(self, method, levels, particles, steps):
        key, row = jax.random.key(0), nvi.get_method(method)
        initial = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
        sampler = nvi.build(
            key, row, target=nvi.targets.ring(), initial=initial, num_levels=levels
        ).sampler
        trainer = Trainer(sampler, row.make_objective(), None, "sequential", particles, None)
        self.args, self.steps = (key, trainer.start(key), trainer.inputs, 0, steps), steps
        began = time.perf_counter()
        self.compiled = trainer.chunk.lower(*self.args).compile()
        self.compile_seconds = time.perf_counter() - began

    def time(self):
        began = time.perf_counter()
        jax.block_until_ready(self.compiled(*self.args))
        return (time.perf_counter() - began) / self.steps


def compare_steps(method, levels, particles, steps, rounds):
    contenders = {"nestedvi": Ours, "coix_loop": CoixLoop, "coix_scan": CoixScan}
    runs = {name: make(method, levels, particles, steps) for name, make in contenders.items()}
    times = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, contender in runs.items():
            times[name].append(contender.time())
    times = {name: xs[1:] for name, xs in times.items()}

    def ratio(name):
        return statistics.median(a / b for a, b in zip(times[name], times["nestedvi"], strict=True))

    return {
        "method": method,
        "levels": levels,
        "particles": particles,
        "step_seconds": {name: statistics.median(xs) for name, xs in times.items()},
        "compile_seconds": {name: run.compile_seconds for name, run in runs.items()},
        "times_faster_than_coix_loop": ratio("coix_loop"),
        "times_faster_than_coix_scan": ratio("coix_scan"),
        "rounds": rounds,
        "steps_a_round": steps,
    }


def temporaries(method, levels, particles):
    """XLA's temporary bytes of one gradient, ours (sequential) and coix's (rolled loop)."""
    key, row = jax.random.key(0), nvi.get_method(method)
    sampler = nvi.build(
        key,
        row,
        target=nvi.targets.ring(),
        initial=nvi.DiagonalNormal(jnp.zeros(2), 5.0),
        num_levels=levels,
    ).sampler
    trainer = Trainer(sampler, row.make_objective(), None, "sequential", particles, None)

    def ours(key, params, fixed):
        return nvi.train.orders.gradient(
            key, trainer.sampler(params, fixed), row.make_objective(), particles
        ).grads

    def theirs(key, params):
        return jax.grad(coix_loss, has_aux=True)(params, key, method, levels, particles)[0]

    def size(fn, *args):
        return int(jax.jit(fn).lower(*args).compile().memory_analysis().temp_size_in_bytes)

    return {
        "levels": levels,
        "particles": particles,
        "nestedvi_bytes": size(ours, key, trainer.params, trainer.fixed),
        "coix_bytes": size(theirs, jax.random.PRNGKey(0), coix_params(key, levels)),
        "parameter_bytes": sum(x.nbytes for x in jax.tree.leaves(trainer.params)),
    }


def table(steps, memory) -> str:
    lines = [
        "# Training step against coix",
        "",
        (
            "| method | K | particles | nestedvi | coix loop | coix in scan | faster than loop |"
            " than scan |"
        ),
    ]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for row in steps:
        micro = {name: f"{1e6 * s:.0f} µs" for name, s in row["step_seconds"].items()}
        ratios = (
            f"{row['times_faster_than_coix_loop']:.2f}× | {row['times_faster_than_coix_scan']:.2f}×"
        )
        head = f"| {row['method']} | {row['levels']} | {row['particles']} | "
        lines.append(
            head + f"{micro['nestedvi']} | {micro['coix_loop']} | {micro['coix_scan']} | {ratios} |"
        )
    lines += [
        "",
        "Compilation: "
        + "; ".join(
            f"{r['method']} " + ", ".join(f"{n} {s:.1f} s" for n, s in r["compile_seconds"].items())
            for r in steps
        ),
    ]
    lines += [
        "",
        "# XLA temporaries of one gradient (NVIR*, sequential)",
        "",
        "| K | particles | nestedvi | coix | parameters |",
        "|---|---|---|---|---|",
    ]
    for row in memory:
        sizes = " | ".join(
            f"{row[name] / 1e6:.2f} MB"
            for name in ("nestedvi_bytes", "coix_bytes", "parameter_bytes")
        )
        lines.append(f"| {row['levels']} | {row['particles']} | {sizes} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    folder = output_folder(args.out)
    steps = [
        compare_steps(method, 8, 36, args.steps, args.rounds) for method in ("nvir-star", "avo")
    ]
    memory = [temporaries("nvir-star", levels, 1000) for levels in (8, 32, 128)]
    text = table(steps, memory)
    write_json(
        folder / "vs_coix.json",
        {"steps": steps, "temporaries": memory, "coix": "0.1.0", **provenance(0)},
    )
    write_text(folder / "vs_coix.md", text)
    print(text)


if __name__ == "__main__":
    main()
