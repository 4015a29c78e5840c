"""Finding, checking and fetching the image files; a server on this machine plays the mirrors,
nothing leaves it.
"""

import http.server
import threading

import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.paper.bgmm_vae import mnist
from nestedvi.paper.bgmm_vae.mnist import CLASSES, DATASETS, load_images
from tests.helpers.idx_files import FILES, described, write_files


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    return folder, write_files(folder)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NESTEDVI_DATA", raising=False)
    return tmp_path / "cache" / "nestedvi" / "tiny"


@pytest.fixture
def serve(monkeypatch):
    """Serves folders; returns their addresses and the list of paths that were asked for."""
    servers, asked = [], []

    def start(folder):
        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args):
                super().__init__(*args, directory=str(folder))

            def log_message(self, *args):
                asked.append(self.path)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/"

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield start, asked
    for server in servers:
        server.shutdown()
        server.server_close()


def know(monkeypatch, folder, mirrors=()):
    monkeypatch.setitem(DATASETS, "tiny", described(folder, mirrors))


def assert_same(splits, arrays):
    for got, want in zip([x for split in splits for x in split], arrays, strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_users_folder_with_and_without_a_subfolder(source, tmp_path, monkeypatch):
    folder, arrays = source
    know(monkeypatch, folder)
    assert_same(load_images("tiny", folder), arrays)
    (tmp_path / "all").mkdir()
    folder.rename(tmp_path / "all" / "tiny")
    assert_same(load_images("tiny", tmp_path / "all"), arrays)
    monkeypatch.setenv("NESTEDVI_DATA", str(tmp_path / "all"))
    assert_same(load_images("tiny"), arrays)


def test_what_is_wrong_with_the_users_folder(source, tmp_path, monkeypatch):
    folder, _ = source
    know(monkeypatch, folder)
    with pytest.raises(nvi.errors.DataError, match=r"holds no files of Tiny.*--data-dir"):
        load_images("tiny", tmp_path / "elsewhere")
    content = (folder / FILES[1]).read_bytes()
    (folder / FILES[1]).unlink()
    with pytest.raises(nvi.errors.DataError, match=f"lacks {FILES[1]}"):
        load_images("tiny", folder)
    (folder / FILES[1]).write_bytes(content[:-1])
    with pytest.raises(nvi.errors.DataError, match=r"not the published file.*SHA-256"):
        load_images("tiny", folder)


def test_files_are_fetched_once(source, serve, cache, monkeypatch):
    (folder, arrays), (start, asked) = source, serve
    know(monkeypatch, folder, [start(folder)])
    assert_same(load_images("tiny"), arrays)
    assert sorted(p.name for p in cache.iterdir()) == sorted(FILES), "nothing temporary is left"
    assert len(asked) == 4
    assert_same(load_images("tiny"), arrays)
    assert len(asked) == 4
    (cache / FILES[0]).write_bytes(b"damaged")
    assert_same(load_images("tiny"), arrays)
    assert len(asked) == 5, "only the damaged file is fetched again"


def test_the_next_mirror_helps_out(source, serve, tmp_path, monkeypatch):
    """A mirror without the files, one with other files, and one that has them."""
    (folder, arrays), (start, _) = source, serve
    write_files(tmp_path / "other", seed=1)
    (tmp_path / "empty").mkdir()
    know(monkeypatch, folder, [start(tmp_path / "empty"), start(tmp_path / "other"), start(folder)])
    assert_same(load_images("tiny"), arrays)


def test_no_mirror_has_the_right_file(source, serve, cache, tmp_path, monkeypatch):
    (folder, _), (start, _) = source, serve
    write_files(tmp_path / "other", seed=1)
    know(monkeypatch, folder, [start(tmp_path / "other")])
    with pytest.raises(nvi.errors.DataError, match=r"another checksum.*--data-dir"):
        load_images("tiny")
    assert list(cache.iterdir()) == []


def test_no_network(source, cache, monkeypatch):
    know(monkeypatch, source[0], ["http://127.0.0.1:9/"])
    monkeypatch.setattr(mnist, "_SECONDS", 2.0)
    with pytest.raises(nvi.errors.DataError, match=r"Could not fetch.*Connect to the network"):
        load_images("tiny")
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_made(source, tmp_path, monkeypatch):
    know(monkeypatch, source[0])
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(nvi.errors.DataError, match="XDG_CACHE_HOME"):
        load_images("tiny")


def test_unknown_data_set():
    with pytest.raises(nvi.errors.UnknownNameError, match="fashion-mnist"):
        load_images("fashon-mnist")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_sets_are_fully_described(name):
    described = DATASETS[name]
    assert set(described.digests) == set(FILES) and all(
        len(d) == 64 for d in described.digests.values()
    )
    assert len(described.classes) == CLASSES and all(m.endswith("/") for m in described.mirrors)
