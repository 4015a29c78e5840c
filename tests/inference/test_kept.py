"""`sample` with a checkpoint: stopped after any stage, the same call ends with the bits of a call
that was not; every other call is refused by name.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import nestedvi as nvi
from nestedvi.storage.stages import KeptStages
from tests.helpers.small_training import assert_same_bits

pytestmark = pytest.mark.usefixtures("compiled_once")
DATA = np.array([0.3, -0.2, 0.9])


def model(x, scale=1.0):
    loc = numpyro.sample("loc", dist.Normal(0, scale))
    numpyro.sample("x", dist.Normal(loc, 1.0), obs=x)


def call(folder=None, *, key=0, data=DATA, function=model, kwargs=None, **options):
    options = {"method": "smc", "num_particles": 80, **options}
    with warnings.catch_warnings():
        # So few particles are warned of.
        warnings.filterwarnings("ignore", "(?s).*", nvi.NestedviWarning)
        return nvi.sample(
            jax.random.key(key),
            function,
            model_args=(data,),
            model_kwargs=kwargs,
            checkpoint=folder,
            **options,
        )


def bits(posterior):
    return posterior.samples, posterior.log_weights, posterior.log_Z, posterior.log_Z_stderr


def stop_after(monkeypatch, num):
    """Ctrl-C when `num` stages are written."""
    write, written = KeptStages._write, []

    def stopping(self, path, content, arrays):
        write(self, path, content, arrays)
        written.append(content["name"])
        if len(written) == num:
            raise KeyboardInterrupt

    monkeypatch.setattr(KeptStages, "_write", stopping)
    return written


METHODS = {
    "smc": {"method": "smc"},
    "nested-sampling": {"method": "nested-sampling"},
    "auto": {"method": "auto"},
    "auto, frozen": {"method": "auto", "num_levels": 3},
    "trained": {"method": "avo", "num_levels": 3, "num_steps": 20},
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "smc" else pytest.mark.slow) for n in METHODS]
)
def test_stopped_after_any_stage_it_ends_with_the_same_bits(name, tmp_path, monkeypatch):
    """Stopped again and again, a stage further each time. Without a folder nothing is written."""
    monkeypatch.chdir(tmp_path)
    whole = call(**METHODS[name])
    assert list(tmp_path.iterdir()) == []
    stages = []
    while True:
        with monkeypatch.context() as patch:
            written = stop_after(patch, 1)
            try:
                posterior = call(tmp_path, **METHODS[name])
            except KeyboardInterrupt as stop:
                assert f"{tmp_path} holds the stages that are done, the same call" in str(stop)
                stages += written
                continue
        break
    assert len(stages) == len(set(stages)) > 1
    assert sorted(path.stem for path in tmp_path.glob("*.stage")) == sorted(
        stage.replace(" ", "-") for stage in stages
    )
    assert_same_bits(bits(posterior), bits(whole))
    assert_same_bits(bits(call(tmp_path, **METHODS[name])), bits(whole))


@pytest.fixture(scope="module")
def done(tmp_path_factory, compiled_once):
    folder = tmp_path_factory.mktemp("done")
    call(folder)
    return folder


def other_model(x, scale=1.0):
    loc = numpyro.sample("loc", dist.Cauchy(0, scale))
    numpyro.sample("x", dist.Normal(loc, 1.0), obs=x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"function": other_model}, "another model"),
        ({"data": DATA + 1}, "another data"),
        ({"data": DATA[:2]}, "another model"),
        ({"kwargs": {"scale": 2.0}}, "another model"),
        ({"key": 1}, "another key"),
        ({"method": "auto"}, r"another method \('smc'\)"),
        ({"num_particles": 81}, r"another num_particles \(80\)"),
    ],
)
def test_every_other_call_is_refused_by_name(done, change, message):
    with pytest.raises(nvi.errors.CheckpointError, match=f"the stages of another call.*{message}"):
        call(done, **change)


def test_the_other_precision_is_refused(done, x64):
    with pytest.raises(nvi.errors.CheckpointError, match="another"):
        call(done)


@pytest.mark.slow
def test_a_log_density_is_kept_too(tmp_path):
    """Arrays that a function closes over are its data."""

    def make(place):
        return lambda z: -0.5 * jnp.sum((z - place) ** 2)

    options = {"dim": 2, "method": "smc", "num_particles": 80, "checkpoint": tmp_path}
    one = nvi.sample(jax.random.key(0), make(jnp.ones(2)), **options)
    assert_same_bits(bits(nvi.sample(jax.random.key(0), make(jnp.ones(2)), **options)), bits(one))
    with pytest.raises(nvi.errors.CheckpointError, match="another data"):
        nvi.sample(jax.random.key(0), make(jnp.zeros(2)), **options)


def test_several_processes_are_refused(tmp_path, monkeypatch):
    """They would not come to the same stages together."""
    monkeypatch.setattr("nestedvi.inference.sample.num_processes", lambda: 2)
    with pytest.raises(ValueError, match=r"in one process only.*2 processes"):
        call(tmp_path)
