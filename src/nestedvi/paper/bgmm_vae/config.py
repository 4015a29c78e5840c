"""What the BGMM-VAE experiment is run with: the rows of its table, and sizes that all rows share.

Every hyperparameter is written here and nowhere else: models, networks and objectives have no
defaults of their own. Nothing is computed here.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from nestedvi.errors import UnknownNameError
from nestedvi.paper.bgmm_vae.mnist import get_dataset
from nestedvi.paper.bgmm_vae.objectives import NestedKLs, WakeSleep

__all__ = ["METHODS", "BgmmVaeConfig", "Settings", "parse_settings", "quick_config"]


@dataclass(frozen=True)
class Settings:
    """How one row of the table is trained. What `NestedKLs` and `WakeSleep` explain of theirs is
    not repeated here.

    With `candidates` > 1 every seed starts as so many models, trained for a share `trial` of the
    iterations each; the one whose clusters tell mini-batches apart best goes on, for as many
    iterations as are left of the same number of training images.
    """

    label: str
    """The row's name in tables and figures."""
    objective: str = "nvi"
    """"nvi" for nested KLs, "rws" for reweighted wake-sleep."""
    learning_rate: float = 1e-3
    """Adam's rate for encoder and decoder."""
    rate_rest: float = 5e-2
    """Adam's rate for everything else."""
    decay: bool = False
    """Whether both rates fall to zero along a cosine."""
    average: float | None = None
    """Decay of an exponential average of the parameters, which is then evaluated; None for the last
    iterate.
    """
    num_prior: int = 100
    """Of `NestedKLs`."""
    pi_c_from: Literal["first", "both"] = "both"
    """Of `NestedKLs`."""
    mixture_update: Literal["sample", "probabilities", "mean-field"] = "sample"
    """Of `NestedKLs`."""
    intermediate: Literal["flow", "mixture"] = "flow"
    """Of `NestedKLs`."""
    neighbours: float = 0.0
    """Of `NestedKLs`."""
    num_samples: int = 10
    """Of `WakeSleep`."""
    model_gradient: Literal["all", "one"] = "all"
    """Of `WakeSleep`."""
    mean_scale: float = 1.0
    """Standard deviation of the clusters' means at the start."""
    candidates: int = 1
    """Models that every seed starts as."""
    trial: float = 0.08
    """Share of the iterations that each candidate is trained for."""

    def __post_init__(self) -> None:
        if self.candidates < 1 or not 0 < self.trial * self.candidates < 1:
            raise ValueError(
                "The trials of all candidates take less than the whole training; got"
                f" {self.candidates} of a share {self.trial}."
            )
        if self.learning_rate <= 0 or self.rate_rest <= 0:
            raise ValueError(
                f"Learning rates must be positive; got {self.learning_rate} and {self.rate_rest}."
            )
        if self.average is not None and not 0 < self.average < 1:
            raise ValueError(f"The decay of an average is between 0 and 1; got {self.average}.")
        # An objective checks its own options.
        self.make_objective()

    def make_objective(self) -> NestedKLs | WakeSleep:
        """What this row minimises."""
        if self.objective == "nvi":
            return NestedKLs(
                num_prior=self.num_prior,
                pi_c_from=self.pi_c_from,
                mixture_update=self.mixture_update,
                intermediate=self.intermediate,
                neighbours=self.neighbours,
            )
        if self.objective == "rws":
            return WakeSleep(num_samples=self.num_samples, model_gradient=self.model_gradient)
        raise UnknownNameError("objective", self.objective, ["nvi", "rws"])


_NVI = Settings(
    "NVI",
    rate_rest=1e-3,
    pi_c_from="first",
    mixture_update="probabilities",
    intermediate="mixture",
    candidates=5,
)
METHODS: dict[str, Settings] = {
    "nvi-printed": Settings("NVI, as printed"),
    "nvi-three": replace(_NVI, label="NVI, three KLs"),
    "nvi": replace(_NVI, neighbours=10.0),
    "rws-printed": Settings("RWS, as printed", "rws", model_gradient="one"),
    "rws": Settings("RWS", "rws", rate_rest=1e-3, model_gradient="one"),
}
"""The rows of the table by name. "As printed" has the paper's learning rates and its objective to
the letter; the others are settings chosen on validation images.
"""


def parse_settings(text: str) -> dict[str, Any]:
    """ "rate_rest=5e-3,decay=true" → the fields of `Settings` to change."""
    kinds = {
        field.name: field.type
        for field in fields(Settings)
        if field.name not in ("label", "objective")
    }
    changes: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (x.strip() for x in part.partition("="))
        if not equals:
            raise ValueError(f"A setting is written name=value; got {part!r}.")
        if name not in kinds:
            raise UnknownNameError("setting", name, kinds)
        changes[name] = _parse(name, value, str(kinds[name]))
    return changes


def _parse(name: str, value: str, kind: str) -> Any:
    if "str" in kind or "Literal" in kind:
        return value
    if "bool" in kind:
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{name} is true or false; got {value!r}.")
        return value.lower() == "true"
    if "None" in kind and value.lower() == "none":
        return None
    try:
        return int(value) if "int" in kind else float(value)
    except ValueError:
        raise ValueError(f"{name} is a number; got {value!r}.") from None


@dataclass(frozen=True)
class BgmmVaeConfig:
    """The experiment as in the paper's appendix."""

    datasets: tuple[str, ...] = ("mnist", "fashion-mnist")
    """Data sets by name, a table each."""
    methods: tuple[str, ...] = tuple(METHODS)
    """Rows of the table by name."""
    variants: tuple[str, ...] = ("",)
    """Changes of settings as text, each of which is tried with each method."""
    seeds: int = 5
    """Trainings of each row, side by side."""
    iterations: int = 50_000
    """Training steps."""
    num_batches: int = 20
    """Mini-batches a training step."""
    batch_size: int = 10
    """Images a mini-batch, N."""
    alpha: float = 0.5
    """Concentration of the Dirichlet prior of λ, and of the λ* that mini-batches are drawn with."""
    dim: int = 10
    """Size of a code z."""
    channels: tuple[int, ...] = (32, 64, 64, 64)
    """Of the encoder's convolutions; the decoder has the last number throughout."""
    hidden: int = 64
    """Width of the hidden layers of q(c|z) and q(λ|c)."""
    flow_depth: int = 8
    """Layers of the planar flow π_z."""
    held_out: int = 10_000
    """Last images of the training split that nothing is trained on."""
    train_images: int | None = None
    """Images to train on at most; None for all that are not held out."""
    shrink: int = 1
    """So many by so many pixels are averaged into one."""
    split: str = "test"
    """What is evaluated on: "test", or "validation" for the held-out images."""
    eval_batches: int = 100
    """Mini-batches of the evaluation."""
    eval_size: int = 300
    """Images a mini-batch of the evaluation."""
    eval_samples: int = 10
    """Draws that E[λ] of a mini-batch is averaged over."""
    half: bool = False
    """Whether encoder and decoder compute in bfloat16."""
    seed: int = 0
    """Seed of all randomness."""

    def __post_init__(self) -> None:
        if not self.datasets or not self.methods or not self.variants:
            raise ValueError("The BGMM-VAE experiment needs at least one data set and one method.")
        for name in self.datasets:
            get_dataset(name)
        for name in self.methods:
            if name not in METHODS:
                raise UnknownNameError("method", name, METHODS)
        for variant in self.variants:
            parse_settings(variant)
        sizes = (
            "seeds",
            "iterations",
            "num_batches",
            "batch_size",
            "held_out",
            "eval_batches",
            "eval_size",
            "eval_samples",
        )
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.split not in ("test", "validation"):
            raise UnknownNameError("split", self.split, ["test", "validation"])


def quick_config(config: BgmmVaeConfig) -> BgmmVaeConfig:
    """A coarse version: small networks and images, few mini-batches a step, minutes on two cores.

    Of all methods it leaves out our own settings without the fourth KL, and wake-sleep at the
    printed rates, which ends with one cluster however long it is trained.
    """
    methods = ("nvi-printed", "nvi", "rws")
    return replace(
        config,
        datasets=config.datasets[:1],
        methods=methods if config.methods == tuple(METHODS) else config.methods,
        seeds=min(config.seeds, 1),
        iterations=min(config.iterations, 4500),
        num_batches=2,
        channels=(8, 16, 16),
        shrink=2,
        eval_batches=50,
    )
