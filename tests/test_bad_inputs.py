"""A hundred wrong inputs, a line each: every one is refused, in a sentence that says what was
expected, what came or what to do. None is passed over, and none ends in a traceback.
"""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import nestedvi as nvi
from tests.helpers.entry_point import command
from tests.helpers.small_training import build

__all__ = ["command"]

KEY = jax.random.key(0)
X, Y = np.zeros(3), np.zeros(3)


def bell(z):
    return -0.5 * jnp.sum(z**2)


def regression(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(slope * x, 1), obs=y)


def branching():
    z = numpyro.sample("z", dist.Normal(0, 1))
    if z > 0:
        z = -z
    numpyro.sample("y", dist.Normal(z, 1), obs=0.0)


def looping():
    z = numpyro.sample("z", dist.Normal(0, 1))
    numpyro.factor("f", float(z))


def numpy_model():
    numpyro.factor("f", np.sin(numpyro.sample("z", dist.Normal(0, 1))))


def wrong_type():
    numpyro.sample("z", dist.Normal(0, 1)) + "a"


def text_density(z):
    return "high"


def branching_density(z):
    return -z[0] if z[0] > 0 else z[0]


def free():
    numpyro.param("a", 1.0)
    numpyro.sample("z", dist.Normal(0, 1))


def sample(model=bell, key=KEY, **options):
    return nvi.sample(key, model, **options)


def of_model(model=regression, **options):
    return nvi.sample(KEY, model, **options)


def fit(sampler=None, objective=None, key=KEY, **options):
    sampler = build(KEY) if sampler is None else sampler
    return nvi.fit(key, sampler, objective, **{"num_steps": 2, "num_particles": 4, **options})


def make(method="avo", key=KEY, **options):
    start = nvi.DiagonalNormal(jnp.zeros(2), 1.0)
    parts = {"target": bell, "initial": start, "num_levels": 3, **options}
    return nvi.build(key, method, **parts)


# fmt: off
API = [
    # sample: the budget
    (lambda: sample(dim="2"), r"dim is a whole number; got '2' \(str\). Write dim=2"),
    (lambda: sample(dim=2.0), r"dim is a whole number; got 2.0 \(float\). Write dim=2"),
    (lambda: sample(dim=0), "dim is 1 or more; got 0"),
    (lambda: sample(dim=True), r"dim is a whole number; got True \(bool\)"),
    (lambda: sample(dim=[2]), r"dim is a whole number; got \[2\] \(list\)"),
    (lambda: sample(dim=2, num_particles=200.0), "num_particles is a whole number; got 200.0"),
    (lambda: sample(dim=2, num_particles="200"), "num_particles is a whole number; got '200'"),
    (lambda: sample(dim=2, num_particles=10), "num_particles is 20 or more; got 10"),
    (lambda: sample(dim=2, num_particles=-5), "num_particles is 20 or more; got -5"),
    (lambda: sample(dim=2, num_particles=None), "num_particles is a whole number; got None"),
    (lambda: sample(dim=2, num_steps=10.5), "num_steps is a whole number; got 10.5"),
    (lambda: sample(dim=2, num_steps=0), "num_steps is 1 or more; got 0"),
    (lambda: sample(dim=2, num_levels=1), "num_levels is 2 or more; got 1"),
    (lambda: sample(dim=2, num_levels="8"), "num_levels is a whole number; got '8'"),
    (lambda: sample(dim=2, method="smk"), "Unknown method 'smk'. Did you mean 'smc'"),
    (lambda: sample(dim=2, method=3), "Unknown method 3. Known: "),
    (lambda: sample(dim=2, method=["smc"]), r"Unknown method \['smc'\]"),
    (lambda: sample(dim=2, method="smc", num_levels=4), "takes no num_levels"),
    (lambda: sample(dim=2, method="auto", num_steps=4), "takes no num_steps"),
    (lambda: sample(dim=2, checkpoint=5), r"checkpoint is a folder.*; got 5 \(int\)"),
    (lambda: sample(dim=2, checkpoint=""), "checkpoint is a folder; got an empty text"),
    (lambda: sample(dim=2, checkpoint="/dev/null/x"), "Cannot write checkpoints to /dev/null/x"),
    (lambda: sample(dim=2, cache=5), r"cache is a folder.*; got 5 \(int\)"),
    (lambda: sample(dim=2, progress="yes"), "progress is True, False, or an object with start"),
    (lambda: sample(dim=2, key=0), r"first argument is a key of JAX; got 0 \(int\). Write"),
    (lambda: sample(dim=2, key=None), "first argument is a key of JAX; got None"),
    (lambda: sample(dim=2, key=jax.random.split(KEY, 3)), "is one key; got 3 of them"),
    (lambda: sample(dim=2, key=jnp.zeros(2)), "is a key of JAX; got an array of shape"),
    # sample: the model
    (lambda: sample(), "If it is a log density and no NumPyro model, give dim"),
    (lambda: sample(dim=2, example=jnp.zeros(2)), "and only one of them"),
    (lambda: sample(example="abc"), "example of a particle must be a pytree of numbers"),
    (lambda: sample(example=()), "the example has none"),
    (lambda: sample(example={"a": object()}), "must be a pytree of numbers"),
    (lambda: sample(5, dim=2), "Expected a density, a NumPyro distribution or a function"),
    (lambda: sample("bell", dim=2), "Expected a density, a NumPyro distribution or a function"),
    (lambda: sample(None), "Expected a density, a NumPyro distribution or a function"),
    (lambda: sample(lambda z: z, dim=2), r"must return a scalar for one particle; got shape \(2,"),
    (lambda: sample(lambda z: 1, dim=2), "returns one real number; got int"),
    (lambda: sample(lambda z: None, dim=2), "cannot score a particle.*None"),
    (lambda: sample(text_density, dim=2), "cannot score a particle"),
    (lambda: sample(lambda z: z["a"], dim=2), "cannot score a particle shaped as dim=2 says"),
    (lambda: sample(lambda: 0.0, dim=2), "cannot score a particle.*positional argument"),
    (lambda: sample(branching_density, dim=2), "cannot be traced.*test_bad_inputs.py, line.*jnp.w"),
    (lambda: sample(lambda z: bell(z) + 1j, dim=2), "returns one real number; got complex"),
    (lambda: sample(dim=2, model_args=(X,)), "are the data of a NumPyro model"),
    (lambda: sample(nvi.DiagonalNormal(jnp.zeros(2), 1.0)), "Say what one particle looks like"),
    (lambda: of_model(), "missing a required argument: 'x'"),
    (lambda: of_model(model_args=0.5), r"model_args is a tuple.*; got 0.5 \(float\).*\(x,\)"),
    (lambda: of_model(model_args=X), r"model_args is a tuple.*array of shape \(3,\)"),
    (lambda: of_model(model_args="abc"), "model_args is a tuple.*'abc'"),
    (lambda: of_model(model_args=(X, Y, X)), "cannot be called with these arguments: too many"),
    (lambda: of_model(model_kwargs=[Y]), "model_kwargs is a dict.*list"),
    (lambda: of_model(model_kwargs={"z": Y}), "cannot be called with these arguments"),
    (lambda: of_model(model_args=(np.array(["a"]),)), r"model_args\[0\] must hold numbers.*text"),
    (lambda: of_model(model_args=(X.astype(object),)), r"model_args\[0\] must hold.*objects"),
    (lambda: of_model(model_args=(X,), model_kwargs={"y": np.array(["b"])}), r"\['y'\] must hold"),
    (lambda: of_model(model_args=(X.astype("M8[s]"),)), "must hold numbers; got an array of dates"),
    (lambda: of_model(model_args=("abc",)), "failed when it was run once: TypeError"),
    (lambda: of_model(model_args=(X,), model_kwargs={"y": np.zeros(2)}), r"'y' .* \(2,\), .*\(3,"),
    (lambda: of_model(branching), "branching cannot be traced.*line.*jnp.where"),
    (lambda: of_model(looping), r"looping cannot be traced.*float\(\)"),
    (lambda: of_model(numpy_model), "numpy_model cannot be traced.*jax.numpy instead of numpy"),
    (lambda: of_model(wrong_type), "wrong_type failed when it was run once: TypeError.*line"),
    (lambda: of_model(free), "has numpyro.param at 'a'"),
    (lambda: of_model(lambda: None), "has no sample sites"),
    (lambda: of_model(5), "Expected a density, a NumPyro distribution or a function"),
    # fit
    (lambda: fit(num_steps=10.5), "num_steps is a whole number; got 10.5"),
    (lambda: fit(num_steps=0), "num_steps is 1 or more; got 0"),
    (lambda: fit(num_steps="10"), "num_steps is a whole number; got '10'"),
    (lambda: fit(num_particles=4.0), "num_particles is a whole number; got 4.0"),
    (lambda: fit(num_particles=0), "num_particles is 1 or more; got 0"),
    (lambda: fit(key=3), "is a key of JAX; got 3"),
    (lambda: fit(sampler="ring"), "sampler is an nvi.NestedSampler.*; got 'ring'"),
    (lambda: fit(objective="reverse-kl"), "The objective is an nvi.Objective; got 'reverse-kl'"),
    (lambda: fit(optimiser=1e-3), "optimiser is one of optax.*; got 0.001"),
    (lambda: fit(order="parallel"), "Unknown order 'parallel'. Did you mean 'level-parallel'"),
    (lambda: fit(order=2), "Unknown order 2"),
    (lambda: fit(restarts=2), "every array of the sampler needs a leading axis"),
    (lambda: fit(restarts=1.5), "restarts is a whole number; got 1.5"),
    (lambda: fit(checkpoint=5), r"checkpoint is a folder.*; got 5 \(int\)"),
    (lambda: fit(checkpoint="/dev/null/x"), "Cannot write checkpoints to /dev/null/x: Not a dir"),
    (lambda: fit(checkpoint_seconds="60"), "checkpoint_seconds is a number of at least 0; got '60"),
    (lambda: fit(checkpoint_seconds=-1), "checkpoint_seconds is a number of at least 0; got -1"),
    (lambda: fit(average=2.0), "is a number between 0 and 1; got 2"),
    (lambda: fit(average="yes"), "is a number between 0 and 1; got 'yes'"),
    (lambda: fit(max_nonfinite=0), "max_nonfinite is 1 or more; got 0"),
    (lambda: fit(progress=5), "progress is True, False, or an object"),
    # parts
    (lambda: make("avoo"), "Unknown method 'avoo'. Did you mean 'avo'"),
    (lambda: make(5), "Unknown method 5"),
    (lambda: make(num_levels=1), "at least 2 levels .*; got K = 1"),
    (lambda: make(num_levels=3.0), "num_levels is a whole number; got 3.0"),
    (lambda: make(key=1), "is a key of JAX; got 1"),
    (lambda: make(initial=bell), "Expected something that can be sampled exactly"),
    (lambda: make(target=3), "Expected a density, a NumPyro distribution or a function"),
    (lambda: make(target=lambda z: z[4:] @ jnp.ones(3)), "target cannot score what the initial"),
    (lambda: nvi.Objective("kl"), "Unknown divergence 'kl'"),
    (lambda: nvi.Objective(learn="everything"), "Unknown parameter group 'everything'"),
    (lambda: nvi.Objective(estimator=1), "Unknown estimator 1"),
    (lambda: nvi.Resampling("sistematic"), "Did you mean 'systematic'"),
    (lambda: nvi.Resampling(5), "Unknown resampling scheme 5"),
    (lambda: nvi.Resampling(when=1.5), r"in \(0, 1\]; got 1.5"),
    (lambda: nvi.Resampling(when="often"), "Unknown resampling rule 'often'"),
    (lambda: nvi.LinearSchedule("3"), "num_levels is a whole number; got '3'"),
    (lambda: nvi.GivenSchedule("abc"), "schedule is a sequence of numbers from 0 to 1; got 'abc'"),
    (lambda: nvi.GivenSchedule([0.0, 0.7, 0.2, 1.0]), "must rise strictly"),
    (lambda: nvi.DiagonalNormal(jnp.zeros(2), -1.0), "scale of a normal must be positive; got -1"),
    (lambda: nvi.DiagonalNormal("a", 1.0), "loc of a normal.*numbers; got 'a'"),
    (lambda: nvi.run(KEY, build(KEY), 4.5), "num_particles is a whole number; got 4.5"),
    (lambda: nvi.run(KEY, bell, 4), "sampler is an nvi.NestedSampler"),
    (lambda: nvi.evaluate(KEY, build(KEY), num_batches=0), "num_batches is 1 or more; got 0"),
    (lambda: nvi.evaluate(KEY, build(KEY), num_particles="9"), "num_particles is a whole number"),
    (lambda: nvi.evaluate_instances(KEY, bell, np.zeros(()), num_particles=2), "leading axis of i"),
    (lambda: nvi.evaluate_instances(KEY, bell, X, num_particles=2.5), "whole number; got 2.5"),
    (lambda: nvi.fit_amortised(KEY, bell, X, num_steps=1, num_particles=0), "is 1 or more; got 0"),
    (lambda: nvi.stack(KEY, build, 0), "num is 1 or more; got 0"),
    (lambda: nvi.stack(KEY, build, 1.5), "num is a whole number; got 1.5"),
]

# The command line: arguments, exit code, and what is said.
CLI = [
    ("sample nowhere.py:m", 1, "There is no file nowhere.py"),
    ("sample m.py", 1, "Say which model of the file"),
    ("sample m.py:modle", 1, "Did you mean 'model'"),
    ("sample :model", 1, "Say which model of the file"),
    ("sample m.py:", 1, "Say which model of the file"),
    ("sample m.py:number", 1, "Expected a density, a NumPyro distribution or a function"),
    ("sample m.py:branching", 1, "m.py, line 11.*jnp.where"),
    ("sample m.py:wrong_type", 1, "TypeError.*m.py, line 15"),
    ("sample m.py:key_error", 1, "KeyError.*m.py, line 18"),
    ("sample m.py:bell", 1, "If it is a log density"),
    ("sample m.py:bell --dim 0", 1, "dim is 1 or more; got 0"),
    ("sample m.py:bell --dim two", 2, "valid int"),
    ("sample m.py:bell --dim 2.5", 2, "valid int"),
    ("sample m.py:bell --dim 2 --seed 1180591620717411303424", 2, "--seed"),
    ("sample m.py:bell --dim 2 --seed 4294967296", 2, "--seed"),
    ("sample m.py:bell --dim 2 --seed -1", 2, "--seed"),
    ("sample m.py:bell --dim 2 --particles 5", 1, "num_particles is 20 or more; got 5"),
    ("sample m.py:bell --dim 2 --particles 1e3", 2, "valid int"),
    ("sample m.py:bell --dim 2 --levels 1", 1, "num_levels is 2 or more; got 1"),
    ("sample m.py:bell --dim 2 --method smk", 1, "Did you mean 'smc'"),
    ("sample m.py:bell --dim 2 --method smc --steps 5", 1, "takes no num_steps"),
    ("sample m.py:bell --dim 2 --out /dev/null/x", 1, "Cannot write to the output folder"),
    ("sample m.py:model --dim 2", 1, "cannot score a particle"),
    ("sample m.py:model --data nothing.csv", 1, "There is no data file nothing.csv"),
    ("sample m.py:model --data m.py", 1, "Data come as .npz or .csv"),
    ("sample m.py:model --data text.csv", 1, "Column 'x' of text.csv must hold numbers; got 'a'"),
    ("sample m.py:model --data ragged.csv", 1, "Row 3 of ragged.csv has 2 entries"),
    ("sample m.py:model --data empty.csv", 1, "first line of empty.csv must name its columns"),
    ("sample m.py:model --data head.csv", 1, "head.csv has a header and no rows"),
    ("sample m.py:model --data binary.csv", 1, "binary.csv is no text file"),
    ("sample m.py:model --data cut.npz", 1, "Cannot read cut.npz as an .npz file"),
    ("sample m.py:model --data objects.npz", 1, "Cannot read objects.npz as an .npz file"),
    ("sample m.py:model --data strings.npz", 1, r"\['x'\] must hold numbers; got an array of text"),
    ("sample m.py:model --data other.npz", 1, "other.npz holds 'y', which m.py:model does not"),
    ("sample broken.py:model", 1, "broken.py failed when it was imported: SyntaxError"),
    ("sample exits.py:model", 1, "exits.py failed when it was imported: SystemExit"),
    ("sample folder.py:model", 1, "There is no file folder.py"),
    ("sample funel", 1, "Did you mean 'funnel'"),
    ("sample funnel --dim 3", 1, "has dim = 10; got --dim 3"),
    ("sample", 2, "Missing argument '(?i:model)'"),
    ("smaple funnel", 2, "No such command 'smaple'"),
    ("sample funnel --sede 3", 2, "No such option: --sede"),
    ("demo --steps 0", 1, "num_steps is 1 or more; got 0"),
    ("demo --steps many", 2, "valid int"),
    ("demo --out /dev/null/x", 1, "Cannot write to the output folder"),
    ("bench step --method nvir-sta", 1, "Did you mean 'nvir-star'"),
    ("bench step --levels 1", 1, "at least 2 levels"),
    ("bench step --particles 0", 1, "particles ≥ 1; got 200 and 0"),
    ("bench step --order parallel", 1, "Did you mean 'level-parallel'"),
    ("bench targets --targets funel", 1, "Did you mean 'funnel'"),
    ("bench targets --methods smk", 1, "Did you mean 'smc'"),
    ("bench targets --seeds 0", 1, "a seed and 20 particles or more; got 0"),
    ("reproduce annealing --levels two", 1, "K must be a whole number; got 'two'"),
    ("reproduce annealing --methods avoo", 1, "Did you mean 'avo'"),
    ("reproduce annealing --restarts 0", 1, "must be at least 1; got 0"),
    ("reproduce annealing --iterations 0", 1, "iterations must be at least 1; got"),
    ("reproduce hmm --rows neurl", 1, "Did you mean 'neural'"),
    ("reproduce hmm --iterations -3", 1, "particles must be at least 1; got -3"),
    ("reproduce bgmm-vae --dataset mnis", 1, "Did you mean 'mnist'"),
    ("reproduce bgmm-vae --set rate=1", 1, "rate"),
    ("reproduce hmn", 2, "No such command 'hmn'"),
]
# fmt: on
assert len(API) + len(CLI) >= 150


@pytest.mark.parametrize("number", range(len(API)))
def test_the_library_refuses(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, said = API[number]
    with pytest.raises((ValueError, TypeError, nvi.errors.CheckpointError)) as caught:
        call()
    message = " ".join(str(caught.value).split())
    assert re.search(said, message) and len(message) < 900, message


MODELS = """
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
number = 5
def model(x=None):
    numpyro.sample("z", dist.Normal(0, 1))
    numpyro.factor("f", 0.0 if x is None else jnp.sum(x))
def branching():
    z = numpyro.sample("z", dist.Normal(0, 1))
    if z > 0:
        numpyro.factor("f", z)
def wrong_type():
    z = numpyro.sample("z", dist.Normal(0, 1))
    len(z + 1)
def key_error():
    numpyro.sample("z", dist.Normal(0, 1))
    {}["a"]
def bell(z):
    return -0.5 * jnp.sum(z**2)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with models and data, good and bad."""
    folder = tmp_path_factory.mktemp("bad")
    texts = {
        "m.py": MODELS,
        "broken.py": "def model(:",
        "exits.py": "raise SystemExit(0)",
        "text.csv": "x\n1\na\n",
        "ragged.csv": "x\n1\n1,2\n",
        "empty.csv": "",
        "head.csv": "x\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "binary.csv").write_bytes(bytes(range(128, 256)))
    (folder / "folder.py").mkdir()
    np.savez(folder / "cut.npz", x=X)
    (folder / "cut.npz").write_bytes((folder / "cut.npz").read_bytes()[:50])
    np.savez(folder / "objects.npz", x=np.array([None, 1], dtype=object))
    np.savez(folder / "strings.npz", x=np.array(["a", "b"]))
    np.savez(folder / "other.npz", y=Y)
    return folder


@pytest.mark.parametrize("line", [line for line, _, _ in CLI])
def test_the_command_line_refuses(line, place, monkeypatch, command):
    code, said = next((code, said) for known, code, said in CLI if known == line)
    monkeypatch.chdir(place)
    before = sorted(Path().iterdir())
    got, stdout, stderr = command(*line.split())
    assert got == code and stdout == "" and "Traceback" not in stderr
    assert re.search(said, " ".join(re.sub("[│╭╮╰╯─]", " ", stderr).split())), stderr
    if code == 1:
        assert len(stderr.strip().splitlines()) == 1 and stderr.startswith("error: ")
        assert "NESTEDVI_TRACEBACK" not in stderr
    left = {path.name for path in Path().iterdir()} - {path.name for path in before}
    assert left <= {"__pycache__", "nestedvi-sample", "nestedvi-demo"} | OUT_FOLDERS


OUT_FOLDERS = {"nestedvi-annealing", "nestedvi-hmm", "nestedvi-bgmm-vae", "nestedvi-benchmarks"}
