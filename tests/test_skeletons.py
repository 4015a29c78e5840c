"""The skeletons of docs/adding-a-part.md run and keep the contracts of what they stand for."""

import re
from pathlib import Path

import jax
import pytest

from nestedvi.inference.answer import Request
from nestedvi.inference.sample import ANSWERS
from nestedvi.targets.catalogue import TARGETS
from tests.densities import test_density_contracts as densities
from tests.divergences import test_f as divergences
from tests.helpers.closed_forms import CASES
from tests.inference import test_answer_contracts as answers
from tests.kernels import test_kernel_contracts as kernels
from tests.kernels import test_transitions as transitions
from tests.paths import test_path_contracts as paths
from tests.targets import test_catalogue as catalogue
from tests.targets import test_classic as targets

PAGE = (Path(__file__).parents[1] / "docs" / "adding-a-part.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE))


def skeleton(section):
    """What the blocks of a section define, run one after the other."""
    blocks = re.findall(r"```python\n(.*?)```", SECTIONS[section], flags=re.DOTALL)
    names = {"__name__": "skeleton"}
    for block in blocks:
        exec(compile(block, f"docs/adding-a-part.md, {section}", "exec"), names)
    return names


def join(monkeypatch, registry, entry):
    """Adds an entry to a registry for one test; its name."""
    ((name, value),) = entry.items()
    assert name not in registry, "the page's example is no part of the library"
    monkeypatch.setitem(registry, name, value)
    return name


def test_every_section_is_tested_here():
    assert set(SECTIONS) == {
        "A kernel",
        "An MCMC move",
        "A path",
        "A divergence",
        "A target",
        "A way of answering",
    }


def test_kernel(monkeypatch, key, x64):
    names = skeleton("A kernel")
    name = join(monkeypatch, kernels.KERNELS, names["entry"])
    names["test_a_step_and_its_return_are_equally_likely"]()
    kernels.test_normalised_and_sampled_faithfully(name, None)
    kernels.test_score_term(name, None)
    kernels.test_gradients_in_the_parameters(name, key, None)


def test_kernel_in_both_precisions(monkeypatch):
    name = join(monkeypatch, kernels.KERNELS, skeleton("A kernel")["entry"])
    for enabled in (False, True):
        kernels.test_shapes_and_precision(name, enabled)
    kernels.test_float32_scores_are_those_of_float64(name)


def test_move(monkeypatch, key):
    name = join(monkeypatch, transitions.TRANSITIONS, skeleton("An MCMC move")["entry"])
    monkeypatch.setattr(transitions, "INVARIANT", [*transitions.INVARIANT, name])
    transitions.test_contract(name, key)
    transitions.test_moves_that_need_a_density_say_so(name, key)
    with jax.enable_x64(True):
        transitions.test_proper_weighting(name, None)


def test_path(monkeypatch):
    name = join(monkeypatch, paths.PATHS, skeleton("A path")["entry"])
    paths.test_thetas_have_one_entry_a_level(name)
    paths.test_trainable_selects_the_parameters_and_nothing_else(name)
    for enabled in (False, True):
        paths.test_jit_vmap_and_precision(name, enabled)
    with jax.enable_x64(True):
        paths.test_log_gamma_against_direct_evaluation(name, None)


def test_divergence(monkeypatch):
    name = join(monkeypatch, CASES, skeleton("A divergence")["entry"])
    divergences.test_equal_densities_have_no_divergence(name)
    divergences.test_extreme_ratios_in_float32(name)
    with jax.enable_x64(True):
        divergences.test_value_and_derivatives(name, None)
        divergences.test_conjugate_exchanges_the_sides(name, None)


def test_target(monkeypatch, key):
    names = skeleton("A target")
    name = join(monkeypatch, TARGETS, names["row"])
    join(monkeypatch, targets.LOG_Z, names["log_Z_entry"])
    join(monkeypatch, densities.DENSITIES, names["entry"])
    catalogue.test_entries_agree_with_their_density(name, key)
    densities.test_scalar_finite_and_in_the_precision_of_its_input(name)
    with jax.enable_x64(True):
        targets.test_log_Z_of_every_target(name, None)
        densities.test_gradient_against_finite_differences(name, None)
        densities.test_precomputing_changes_nothing(name, key, None)


def test_way_of_answering(monkeypatch):
    name = join(monkeypatch, ANSWERS, skeleton("A way of answering")["entry"])
    answers.test_options_without_effect_are_refused(name)
    request = Request(answers.Density(answers.three_modes), 2, answers.NUM, name)
    answers.check_answer(ANSWERS[name](jax.random.key(1), request))


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:tests|src)/[\w/]+\.py)`", PAGE))))
def test_files_named_on_the_page_exist(path):
    assert (Path(__file__).parents[1] / path).exists()
