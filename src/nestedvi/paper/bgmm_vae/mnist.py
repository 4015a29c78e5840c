"""MNIST and FashionMNIST: found in a folder of the user's, or fetched once into a cache, and
checked either way.

Where files are looked for: the folder given, else the environment variable NESTEDVI_DATA, each with
or without a subfolder named after the data set; else the cache ($XDG_CACHE_HOME or ~/.cache, then
nestedvi/), which is filled from public mirrors. What the images are for is not known here.
"""

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from nestedvi.errors import DataError, UnknownNameError
from nestedvi.paper.bgmm_vae.idx import read_idx
from nestedvi.paper.bgmm_vae.splits import Split

__all__ = ["CLASSES", "DATASETS", "ImageSet", "get_dataset", "load_images"]

CLASSES = 10
"""How many classes each of the data sets has."""

VARIABLE = "NESTEDVI_DATA"
_SECONDS = 30.0
_PIECE = 1 << 16


@dataclass(frozen=True)
class ImageSet:
    """Four files by role, the SHA-256 digest of each, the mirrors that hold them, and names for the
    classes.
    """

    label: str
    folders: tuple[str, ...]
    mirrors: tuple[str, ...]
    digests: Mapping[str, str]
    classes: tuple[str, ...]


_FILES = {
    ("train", "images"): "train-images-idx3-ubyte.gz",
    ("train", "labels"): "train-labels-idx1-ubyte.gz",
    ("test", "images"): "t10k-images-idx3-ubyte.gz",
    ("test", "labels"): "t10k-labels-idx1-ubyte.gz",
}

DATASETS: dict[str, ImageSet] = {
    "mnist": ImageSet(
        "MNIST",
        ("mnist", "MNIST"),
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        {
            "train-images-idx3-ubyte.gz": (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
            ),
            "train-labels-idx1-ubyte.gz": (
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
            ),
            "t10k-images-idx3-ubyte.gz": (
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
            ),
            "t10k-labels-idx1-ubyte.gz": (
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
            ),
        },
        tuple("0123456789"),
    ),
    "fashion-mnist": ImageSet(
        "FashionMNIST",
        ("fashion_mnist", "fashion-mnist", "FashionMNIST"),
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        {
            "train-images-idx3-ubyte.gz": (
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
            ),
            "train-labels-idx1-ubyte.gz": (
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"
            ),
            "t10k-images-idx3-ubyte.gz": (
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
            ),
            "t10k-labels-idx1-ubyte.gz": (
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
            ),
        },
        (
            "T-shirt",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "boot",
        ),
    ),
}


def get_dataset(name: str) -> ImageSet:
    """A data set by name."""
    if name not in DATASETS:
        raise UnknownNameError("data set", name, DATASETS)
    return DATASETS[name]


def load_images(
    name: str, folder: str | Path | None = None, console: Console | None = None
) -> tuple[Split, Split]:
    """The training and the test split.

    **Arguments:**

    - `folder`: where the four files lie; nothing is fetched then. By default $NESTEDVI_DATA, else
      the cache, filled if need be.
    - `console`: where a progress bar goes while files are fetched.
    """
    dataset = get_dataset(name)
    folder = folder or os.environ.get(VARIABLE)
    paths = _in_folder(dataset, Path(folder)) if folder else _in_cache(name, dataset, console)
    arrays = {role: read_idx(paths[file]) for role, file in _FILES.items()}
    return tuple(
        Split(arrays[part, "images"], arrays[part, "labels"]) for part in ("train", "test")
    )  # type: ignore[return-value]


def _in_folder(dataset: ImageSet, folder: Path) -> dict[str, Path]:
    """The user's own files: all four, in the folder or in a subfolder named after the set."""
    places = [folder / name for name in dataset.folders] + [folder]
    for place in places:
        paths = {file: place / file for file in dataset.digests}
        missing = [file for file, path in paths.items() if not path.is_file()]
        if not missing:
            for file, path in paths.items():
                _check(dataset, file, path)
            return paths
        if len(missing) < len(paths):
            raise DataError(
                f"{place} lacks {', '.join(missing)} of {dataset.label}. Put the missing files"
                " there."
            )
    raise DataError(
        f"{folder} holds no files of {dataset.label} (looked in it and in {places[0].name}/). Give"
        f" the folder that holds {next(iter(dataset.digests))} and the others, or leave out"
        f" --data-dir and {VARIABLE} to fetch them."
    )


def _check(dataset: ImageSet, file: str, path: Path) -> None:
    digest = _digest(path)
    if digest != dataset.digests[file]:
        raise DataError(
            f"{path} is not the published file of {dataset.label}: SHA-256 {digest[:16]}…,"
            f" expected {dataset.digests[file][:16]}…. Delete it and fetch it again."
        )


def _digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _in_cache(name: str, dataset: ImageSet, console: Console | None) -> dict[str, Path]:
    root = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(root) if root else Path.home() / ".cache") / "nestedvi" / name
    paths = {file: folder / file for file in dataset.digests}
    # A file that was damaged since is fetched again: the cache is ours.
    missing = [
        file
        for file, path in paths.items()
        if not path.is_file() or _digest(path) != dataset.digests[file]
    ]
    if missing:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"Cannot make the cache folder {folder}: {error.strerror}. Set XDG_CACHE_HOME."
            ) from error
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
        )
        with Progress(*columns, console=console or Console(stderr=True)) as progress:
            for file in missing:
                _fetch(dataset, file, paths[file], progress)
    return paths


def _fetch(dataset: ImageSet, file: str, path: Path, progress: Progress) -> None:
    """Tries the mirrors in turn; the file appears under its name only when it is whole and
    right.
    """
    troubles = []
    for mirror in dataset.mirrors:
        task = progress.add_task(f"{dataset.label} {file}", total=None)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".fetch-")
        temporary = Path(name)
        try:
            with (
                os.fdopen(handle, "wb") as out,
                urllib.request.urlopen(mirror + file, timeout=_SECONDS) as answer,
            ):
                size = answer.headers.get("Content-Length")
                progress.update(task, total=int(size) if size else None)
                while piece := answer.read(_PIECE):
                    out.write(piece)
                    progress.advance(task, len(piece))
            if _digest(temporary) == dataset.digests[file]:
                temporary.chmod(0o644)
                temporary.replace(path)
                return
            troubles.append(f"{mirror} sent a file with another checksum")
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, OSError) as error:
            troubles.append(f"{mirror}: {getattr(error, 'reason', None) or error}")
        finally:
            temporary.unlink(missing_ok=True)
            progress.remove_task(task)
    raise DataError(
        f"Could not fetch {file} of {dataset.label} ({'; '.join(troubles)}). Connect to the"
        f" network, or put the four files into a folder and give it with --data-dir or {VARIABLE}."
    )
