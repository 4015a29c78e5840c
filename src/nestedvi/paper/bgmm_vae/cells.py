"""The cells of the BGMM-VAE grid: which trainings a configuration asks for. Nothing is trained
here.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from nestedvi.paper.bgmm_vae.config import METHODS, BgmmVaeConfig, Settings, parse_settings

__all__ = ["Cell", "cells_of"]


@dataclass(frozen=True)
class Cell:
    """One training of several seeds: a data set, a method, its settings."""

    dataset: str
    method: str
    variant: str
    settings: Settings
    config: BgmmVaeConfig

    @property
    def name(self) -> str:
        """The name of its files."""
        variant = "".join(x if x.isalnum() or x in "._-=" else "_" for x in self.variant)
        return "-".join(filter(None, (self.dataset, self.method, variant, self.config.split)))

    @property
    def label(self) -> str:
        """The name of its row in tables and figures."""
        return self.settings.label + (f" ({self.variant})" if self.variant else "")

    @property
    def cost(self) -> float:
        """Expected time, in units of one image through the networks once."""
        samples = self.settings.num_samples if self.settings.objective == "rws" else 1
        config = self.config
        return float(
            config.iterations
            * config.seeds
            * config.num_batches
            * config.batch_size
            * (1 + 2 * samples)
        )

    @property
    def trial_iterations(self) -> int:
        """How long every candidate is trained before one is chosen; nothing where there is no
        choice.
        """
        settings = self.settings
        return (
            max(1, round(settings.trial * self.config.iterations)) if settings.candidates > 1 else 0
        )

    @property
    def spent_iterations(self) -> int:
        """What the trials of all candidates of a seed take."""
        return self.settings.candidates * self.trial_iterations

    @property
    def content(self) -> dict[str, Any]:
        """What the result depends on; which other cells are asked for does not matter.

        Settings at their defaults are left out: a new one, which changes nothing by default, leaves
        finished cells valid.
        """
        content = asdict(self)
        for name in ("datasets", "methods", "variants"):
            del content["config"][name]
        usual = asdict(Settings(self.settings.label))
        content["settings"] = {
            name: value for name, value in content["settings"].items() if value != usual[name]
        }
        return content

    @property
    def description(self) -> dict[str, Any]:
        """What its row says before anything is trained."""
        config = self.config
        return {
            "dataset": self.dataset,
            "method": self.method,
            "variant": self.variant,
            "settings": asdict(self.settings),
            "split": config.split,
            "seeds": config.seeds,
            "iterations": config.iterations,
            "training_images_per_seed": config.iterations * config.num_batches * config.batch_size,
        }


def cells_of(config: BgmmVaeConfig) -> Iterator[Cell]:
    """Every data set, method and variant."""
    for dataset in config.datasets:
        for method in config.methods:
            for variant in config.variants:
                yield Cell(
                    dataset,
                    method,
                    variant,
                    replace(METHODS[method], **parse_settings(variant)),
                    config,
                )
