"""Files of keys and certificates: read with a sentence about what is wrong, written at once and
never open to others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.deploy.keys.library import UnsupportedAlgorithm, ec, serialization, x509


def load_certificate(path: Path) -> x509.Certificate:
    """A PEM certificate, or one sentence about why not."""
    data = read_bytes(path)
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        raise InvalidInput(f"{path} is not a certificate in PEM form.") from None


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput(
            f"{error.filename or folder} cannot be written: {error.strerror or error}."
        ) from None


def write_bytes(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Atomic. mkstemp makes files that only their owner may read, so a secret is never open to
    others, not even for a moment.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            f.flush()
            os.fchmod(f.fileno(), mode)
            os.fsync(f.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def fill_folder(folder: Path, files: dict[str, tuple[bytes, int]]) -> None:
    """A node's folder at once, so that a key and a certificate that do not belong together never
    lie in it.
    """
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))  # 0700
    former = fresh.with_name(f"{fresh.name}.former")
    try:
        for name, (data, mode) in files.items():
            write_bytes(fresh / name, data, mode)
        if folder.exists():
            folder.rename(former)
        fresh.rename(folder)
        _sync(folder.parent)
        if former.exists():
            shutil.rmtree(former)
    except BaseException:
        if former.exists() and not folder.exists():
            former.rename(folder)
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}.") from None


def load_ca(path: Path) -> x509.Certificate:
    ca = load_certificate(path)
    try:
        if ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return ca
    except (x509.ExtensionNotFound, ValueError):
        pass
    raise InvalidInput(f"{path} is a certificate, but not that of a CA.")


def load_key(path: Path, *, openssh: bool = False) -> Any:
    data = read_bytes(path)
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise InvalidInput(
            f"the private key {path} is open to other users (mode {mode:04o}), but must be its"
            f" owner's alone: chmod 600 {path}."
        )
    try:
        return (
            serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
        )(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidInput(
            f"{path} is not an unencrypted private key in {'OpenSSH' if openssh else 'PEM'} form."
        ) from None


def private_pem(
    key: ec.EllipticCurvePrivateKey,
    form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def openssh_text(key: Any) -> str:
    return str(
        key.public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        ).decode()
    )
