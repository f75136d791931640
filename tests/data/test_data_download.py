"""Downloads from a server that breaks off, lies and serves ranges, on this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.data.download import DownloadFailed, fetch
from coterie.data.files import Download, Published, either, locate, search

BODY = np.random.default_rng(0).bytes(300_000)
SHA = "sha256:" + hashlib.sha256(BODY).hexdigest()


@dataclass
class Site:
    """What the server holds and how it behaves, and what it was asked."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    break_after: list[int | None] = field(default_factory=list)
    """Per request, after how many bytes the connection is closed (None: not at all)."""
    wrong: int = 0
    """So many requests are answered with other bytes of the right length."""
    asked: list[str | None] = field(default_factory=list)
    """The Range of every request."""


@pytest.fixture
def site() -> Iterator[Site]:
    state = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append(wanted)
            body = state.files.get(self.path.strip("/"))
            if body is None:
                self.send_error(404)
                return
            if state.wrong > 0:
                state.wrong -= 1
                body = bytes(len(body))
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            stop = state.break_after.pop(0) if state.break_after else None
            self.wfile.write(body[start : None if stop is None else start + stop])
            self.wfile.flush()
            if stop is not None:
                self.connection.close()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def test_fetches_and_checks(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"] = BODY
    path = fetch((f"{site.url}/a.bin",), "a.bin", tmp_path / "new" / "folder", SHA)
    assert path.read_bytes() == BODY
    assert site.asked == [None]
    assert [p.name for p in path.parent.iterdir()] == ["a.bin"]


def test_resumes_where_the_connection_broke(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"] = BODY
    site.break_after = [200_000]
    assert fetch((f"{site.url}/a.bin",), "a.bin", tmp_path, SHA).read_bytes() == BODY
    assert site.asked[0] is None
    begin = int(site.asked[1].removeprefix("bytes=").rstrip("-"))
    assert 0 < begin <= 200_000


def test_a_later_run_resumes_too(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"] = BODY
    site.break_after = [100_000, 100_000]
    with pytest.raises(
        DownloadFailed, match=r"a\.bin could not be downloaded from http://127\.0\.0\.1.*: "
    ):
        fetch((f"{site.url}/a.bin",), "a.bin", tmp_path, SHA)
    assert not (tmp_path / "a.bin").exists()
    assert 0 < (tmp_path / "a.bin.part").stat().st_size < len(BODY)
    assert fetch((f"{site.url}/a.bin",), "a.bin", tmp_path, SHA).read_bytes() == BODY
    assert site.asked[-1] is not None


def test_a_complete_part_is_only_moved(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"] = BODY
    (tmp_path / "a.bin.part").write_bytes(BODY)
    assert fetch((f"{site.url}/a.bin",), "a.bin", tmp_path, SHA).read_bytes() == BODY


def test_wrong_content_is_deleted_and_fetched_again(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"] = BODY
    site.wrong = 1
    assert fetch((f"{site.url}/a.bin",), "a.bin", tmp_path, SHA).read_bytes() == BODY
    assert site.asked == [None, None]


def test_a_bad_part_of_an_earlier_run_is_deleted(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"] = BODY
    (tmp_path / "a.bin.part").write_bytes(bytes(1000))
    assert fetch((f"{site.url}/a.bin",), "a.bin", tmp_path, SHA).read_bytes() == BODY
    assert site.asked == ["bytes=1000-", None]


def test_wrong_content_twice_is_one_sentence_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"] = BODY
    site.wrong = 2
    with pytest.raises(DownloadFailed, match="its checksum is wrong"):
        fetch((f"{site.url}/a.bin",), "a.bin", tmp_path, SHA)
    assert len(site.asked) == 2
    assert list(tmp_path.iterdir()) == []


def test_second_try_goes_to_the_mirror(site: Site, tmp_path: Path) -> None:
    site.files["mirror/a.bin"] = BODY
    assert (
        fetch(
            (f"{site.url}/gone/a.bin", f"{site.url}/mirror/a.bin"), "a.bin", tmp_path, SHA
        ).read_bytes()
        == BODY
    )


def test_not_found_says_the_status(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match="the server answered 404"):
        fetch((f"{site.url}/a.bin",), "a.bin", tmp_path, SHA)


def _zip(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def _tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _published(
    site: Site, file: str, data: bytes, members: dict[str, str | None], hash: str | None = None
) -> Published:
    site.files[file] = data
    return Published(
        "Toy",
        tuple(members),
        ("toy",),
        "http://toy.example/",
        (Download((f"{site.url}/{file}",), file, hash, members),),
    )


@pytest.mark.parametrize(
    "pack", [_zip, _tar, lambda m: _zip({"inner.zip": _zip(m)})], ids=["zip", "tar", "zip in zip"]
)
def test_archives_are_unpacked_checked_and_removed(
    site: Site, own_cache: Path, pack: object
) -> None:
    content = pack(
        {"Top Folder/train/x.txt": b"12", "Top Folder/extra.exe": b"no", "../evil.txt": b"no"}
    )  # type: ignore[operator]
    toy = _published(site, "toy.bin", content, {"train/x.txt": hashlib.sha256(b"12").hexdigest()})
    assert locate(toy)["train/x.txt"].read_bytes() == b"12"
    assert sorted(str(p.relative_to(own_cache)) for p in own_cache.rglob("*") if p.is_file()) == [
        "toy/train/x.txt"
    ]


def test_an_archive_with_other_members_is_fetched_twice_then_refused(
    site: Site, own_cache: Path
) -> None:
    toy = _published(
        site, "toy.zip", _zip({"x.txt": b"13"}), {"x.txt": hashlib.sha256(b"12").hexdigest()}
    )
    with pytest.raises(
        InvalidInput,
        match=r"Toy is not on this machine .*x\.txt in the archive has a wrong checksum",
    ):
        locate(toy)
    assert len(site.asked) == 2
    assert not any(p.is_file() for p in own_cache.rglob("*"))


def test_a_cut_archive_is_refused(site: Site, own_cache: Path) -> None:
    toy = _published(site, "toy.zip", _zip({"x.txt": b"12" * 500})[:300], {"x.txt": None})
    with pytest.raises(InvalidInput, match="the archive is damaged"):
        locate(toy)
    assert not any(p.is_file() for p in own_cache.rglob("*"))


def test_order_of_folders(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Published("Toy", ("x.txt",), ("toy",), "http://toy.example/")
    explicit, shared = tmp_path / "explicit", tmp_path / "shared"
    for root in (explicit, shared, own_cache):
        (root / "toy").mkdir(parents=True)
        (root / "toy" / "x.txt").write_text(root.name)
    monkeypatch.setenv("COTERIE_DATA", str(shared))
    assert locate(toy, str(explicit))["x.txt"].read_text() == "explicit"
    assert locate(toy)["x.txt"].read_text() == "shared"
    monkeypatch.delenv("COTERIE_DATA")
    assert locate(toy)["x.txt"].read_text() == "cache"
    (explicit / "x.txt").write_text("own folder")
    (explicit / "toy" / "x.txt").unlink()
    assert locate(toy, str(explicit))["x.txt"].read_text() == "own folder"
    (shared / "x.txt").write_text("not looked at")
    monkeypatch.setenv("COTERIE_DATA", str(shared))
    (shared / "toy" / "x.txt").unlink()
    assert locate(toy)["x.txt"].read_text() == "cache"


def test_plain_or_gz(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"1"))
    assert either(tmp_path / "x") == tmp_path / "x.gz"
    assert either(tmp_path / "z") is None


def test_absent_files_are_named_with_their_place_and_home(own_cache: Path) -> None:
    toy = Published("Toy", ("x.txt", "y.txt"), ("toy",), "http://toy.example/")
    with pytest.raises(InvalidInput) as caught:
        locate(toy)
    text = str(caught.value)
    for part in (
        "Toy is not on this machine",
        "x.txt, y.txt",
        str(own_cache / "toy"),
        "http://toy.example/",
        "COTERIE_DATA",
        "data_dir",
    ):
        assert part in text
    assert "\n" not in text


def test_offline_is_one_sentence(own_cache: Path) -> None:
    # Port 9 of this machine: nobody listens, as on a machine without a network.
    toy = Published(
        "Toy",
        ("x.txt",),
        ("toy",),
        "http://toy.example/",
        (Download(("http://127.0.0.1:9/x.txt",), "x.txt", SHA),),
    )
    with pytest.raises(
        InvalidInput,
        match=(
            r"Toy is not on this machine \(x\.txt could not be downloaded from .*: there is no"
            r" connection\)"
        ),
    ):
        locate(toy)
    with pytest.raises(InvalidInput, match="downloading is switched off"):
        locate(toy, download=False)


def test_data_dir_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"data_dir is .*nowhere.*no such folder"):
        search(Published("Toy", ("x",), ("toy",), ""), str(tmp_path / "nowhere"))
