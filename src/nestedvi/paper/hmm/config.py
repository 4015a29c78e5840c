"""The configuration of the experiment: the table's rows, and every number that a reader may want to
change, written here and nowhere else. It only checks itself; nothing is computed here.
"""

from dataclasses import dataclass, replace

from nestedvi.errors import UnknownNameError

__all__ = ["ROWS", "HMMConfig", "Row", "quick_hmm_config"]


@dataclass(frozen=True)
class Row:
    """A row of the table: a heuristic, how it is optimised, which proposal for η, and what is added
    when it is run.
    """

    label: str
    heuristic: str
    optimisation: str = "partial"
    encoder: str = "statistics"
    symmetric: bool = False
    guided: bool = False
    refresh: bool = False
    trained_as: str | None = None


ROWS: dict[str, Row] = {
    "none": Row("no heuristic", "none"),
    "gmm": Row("Gaussian mixture", "gmm"),
    "neural": Row("neural, partial", "neural"),
    "neural-full": Row("neural, full", "neural", optimisation="full"),
    "neural-names": Row("neural + all names of clusters", "neural", symmetric=True),
    "gmm-em": Row("Gaussian mixture + EM proposal", "gmm", encoder="em", symmetric=True),
    "neural-em": Row("neural + EM proposal", "neural", encoder="em", symmetric=True),
    "recursion-em": Row(
        "recursion (sees z_k) + EM proposal", "recursion", encoder="em", symmetric=True, guided=True
    ),
    "recursion-em-refresh": Row(
        "recursion + EM proposal + refresh of η",
        "recursion",
        encoder="em",
        symmetric=True,
        guided=True,
        refresh=True,
        trained_as="recursion-em",
    ),
}
"""The first four are the paper's; each of the others adds to a row above it."""


@dataclass(frozen=True)
class HMMConfig:
    """One configuration for the whole table.

    `width` is that of all networks; `em_steps` are Baum-Welch steps of the EM proposal. η is moved
    by `refresh_steps` random-walk steps of `refresh_scale` posterior standard deviations after
    every `refresh_every` states. The reference is computed for `references` test instances; those
    whose standard error is above `reference_stderr` are done again, in at most `reference_rounds`
    rounds. `shown` are the test instances in the figure, `at_once` is how many are evaluated side
    by side, and `series…` belong to the linear-Gaussian model.
    """

    rows: tuple[str, ...] = tuple(ROWS)
    num_steps: int = 200
    train_instances: int = 10_000
    test_instances: int = 2_000
    particles: int = 1_000
    iterations: int = 5_000
    train_particles: int = 64
    batch_size: int = 16
    learning_rate: float = 1e-3
    width: int = 128
    order: str = "two-phase"
    em_steps: int = 12
    refresh_every: int = 20
    refresh_steps: int = 2
    refresh_scale: float = 0.8
    references: int = 100
    reference_runs: int = 6
    reference_particles: int = 1_000
    reference_moves: int = 20
    reference_ess_share: float = 0.8
    reference_stderr: float = 0.04
    reference_rounds: int = 3
    shown: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    at_once: int = 20
    measure_cost: bool = True
    series: int = 10
    series_steps: int = 50
    series_iterations: int = 4_000
    series_learning_rate: float = 2e-2
    series_particles: int = 100
    series_batches: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("The HMM experiment needs at least one row.")
        for name in self.rows:
            if name not in ROWS:
                raise UnknownNameError("row of the HMM table", name, ROWS)
        if self.num_steps % self.refresh_every:
            raise ValueError(
                f"`refresh_every` must divide the {self.num_steps} steps; got {self.refresh_every}."
            )
        if self.references > self.test_instances:
            raise ValueError(
                f"References are computed for test instances: at most {self.test_instances}; got"
                f" {self.references}."
            )
        if min(self.iterations, self.test_instances, self.particles, self.references) < 1:
            raise ValueError(
                "Iterations, test instances, references and particles must be at least 1; got"
                f" {self.iterations}, {self.test_instances}, {self.references} and"
                f" {self.particles}."
            )


def quick_hmm_config(config: HMMConfig) -> HMMConfig:
    """A coarse version of everything: minutes on two cores."""
    wanted = ("none", "gmm", "neural", "recursion-em", "recursion-em-refresh")
    return replace(
        config,
        rows=tuple(name for name in config.rows if name in wanted) or config.rows,
        num_steps=50,
        train_instances=1_000,
        test_instances=40,
        particles=100,
        iterations=min(config.iterations, 200),
        train_particles=32,
        batch_size=8,
        learning_rate=3e-3,
        width=32,
        refresh_every=10,
        references=10,
        reference_runs=2,
        reference_particles=300,
        reference_moves=10,
        shown=(0, 1),
        at_once=10,
        measure_cost=False,
        series=2,
        series_iterations=500,
        series_batches=50,
    )
