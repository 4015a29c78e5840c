"""The annealing experiment's configuration: every number of section 5.1, once. It only checks
itself; nothing is trained here, and importing it is cheap, since the command line's help reads it.
"""

from dataclasses import dataclass, replace

from nestedvi.methods import get_method
from nestedvi.train.orders import get_order

__all__ = ["AnnealingConfig", "quick_config"]


@dataclass(frozen=True)
class AnnealingConfig:
    """One configuration for the whole table: K · L = `budget` samples an iteration, as in the
    paper's appendix.
    """

    methods: tuple[str, ...] = (
        "svi",
        "svi-flow",
        "avo",
        "nvi",
        "nvir",
        "nvi-star",
        "nvir-star",
        "avo-flow",
        "nvi-star-flow",
        "nvir-star-flow",
        "vsmc",
    )
    levels: tuple[int, ...] = (2, 4, 6, 8)
    restarts: int = 10
    iterations: int = 20_000
    budget: int = 288
    learning_rate: float = 1e-3
    average: float | None = 0.999
    initial_scale: float = 5.0
    eval_batches: int = 100
    eval_particles: int = 100
    seed: int = 0
    order: str = "sequential"
    targets: tuple[tuple[str, float, float], ...] = (("two-moons", 2.0, 4.0), ("rings", 4.0, 8.0))
    large_levels: tuple[int, ...] = (8, 16, 32, 64, 128)
    large_restarts: int = 2
    # Method, K, particles, steps, learning rate.
    budgets: tuple[tuple[str, int, int, int, float], ...] = (
        ("nvir-star", 8, 36, 4000, 3e-3),
        ("nvir-star", 8, 36, 8000, 3e-3),
        ("nvir-star", 8, 36, 12000, 3e-3),
        ("nvir-star", 8, 36, 16000, 3e-3),
        ("nvir-star-flow", 4, 16, 3000, 4e-3),
        ("nvir-star-flow", 6, 6, 3000, 3e-3),
        ("nvir-star-flow", 6, 6, 3500, 3e-3),
        ("nvir-star-flow", 6, 6, 4000, 3e-3),
        ("nvir-star-flow", 6, 6, 5000, 3e-3),
        ("nvir-star-flow", 6, 16, 1000, 6e-3),
        ("nvir-star-flow", 8, 5, 3000, 3e-3),
        ("nvir-star-flow", 8, 6, 2000, 4e-3),
        ("nvir-star-flow", 8, 8, 2000, 4e-3),
        ("nvir-star-flow", 8, 8, 2500, 4e-3),
    )
    top_only: bool = False
    beyond: bool = True

    def __post_init__(self) -> None:
        if not self.methods or not self.levels:
            raise ValueError(
                "The annealing experiment needs at least one method and one value of K."
            )
        for name in self.methods:
            get_method(name).make_objective()
        for k in self.levels:
            if k < 2 or self.budget // k < 2:
                raise ValueError(
                    f"K must be between 2 and {self.budget // 2} (K · particles = {self.budget});"
                    f" got {k}."
                )
        if self.restarts < 1 or self.iterations < 1:
            raise ValueError(
                f"Restarts and iterations must be at least 1; got {self.restarts} and"
                f" {self.iterations}."
            )
        get_order(self.order)


def quick_config(config: AnnealingConfig) -> AnnealingConfig:
    """A coarse version of everything: minutes on two cores."""
    return replace(
        config,
        top_only=True,
        average=0.99,
        restarts=min(config.restarts, 2),
        iterations=min(config.iterations, 1000),
        eval_batches=20,
        large_levels=(8, 32),
        large_restarts=2,
        budgets=(("nvir-star", 8, 36, 500, 1e-2),),
    )
