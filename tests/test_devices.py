"""What `devices=` means, and everything that needs eight devices, in processes of their own."""

import jax
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.devices import as_mesh, check_divides, everywhere, gather, over_particles, to_host
from nestedvi.errors import UnknownNameError
from tests.helpers.virtual_devices import run_checks


def test_on_eight_devices():
    """Of each kind of layout one, and what compiled programs exchange; the others are slow ones."""
    run_checks("check_sampling.py", "check_training.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sampling", "training", "answers", "enumerations"])
def test_everything_on_eight_devices(name):
    run_checks(f"check_{name}.py", marks="slow", timeout=3000)


def test_one_device_needs_no_mesh():
    assert as_mesh(None, "batches") is None
    assert as_mesh(1, "batches") is None


def test_a_list_of_devices_is_a_mesh_along_the_axis():
    mesh = as_mesh(jax.devices()[:1], "batches")
    assert dict(mesh.shape) == {"batches": 1}


def test_too_many_devices_are_refused_with_the_way_to_have_them():
    with pytest.raises(ValueError, match=r"1000 devices were asked for.*device_count=1000"):
        as_mesh(1000, "batches")


def test_unknown_axes_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'particles'"):
        nvi.devices.mesh(particle=1)
    with pytest.raises(UnknownNameError, match="levels"):
        as_mesh(nvi.devices.mesh(levels=1), "batches", ("particles",))
    with pytest.raises(ValueError, match="one axis or more"):
        nvi.devices.mesh()


def test_anything_else_is_refused():
    with pytest.raises(TypeError, match="a number, a list of JAX devices, or a mesh"):
        as_mesh(["gpu"], "batches")


def test_nothing_is_constrained_without_a_mesh():
    x = np.ones(3)
    assert over_particles(x) is x
    assert everywhere(x) is x
    check_divides(7, "num_particles", None, "particles")


def test_gathering_leaves_alone_what_is_on_one_device():
    x = jax.numpy.ones(3)
    assert gather(x) is x
    assert isinstance(to_host(x), np.ndarray)
