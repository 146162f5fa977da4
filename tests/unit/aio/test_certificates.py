"""Files that are followed: what counts as a change, and what becomes of unusable ones."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pyserve import _router
from pyserve.aio.certificates import Followed, MeshTls, mesh_tls, read_pem
from pyserve.config.tls import SecuritySettings, TlsFiles
from pyserve.errors import OptionError
from pyserve.gateway.security import IngressSecurity
from pyserve.observe.metrics import Scrape
from tests.support.authority import Authority, Files


class Reader:
    """Counts how often it is asked to read, and refuses if told to."""

    def __init__(self, *paths: Path) -> None:
        self.paths: Sequence[Path] = paths
        self.count = 0
        self.error: Exception | None = None

    def __call__(self) -> Sequence[Path]:
        self.count += 1
        if self.error is not None:
            raise self.error
        return self.paths


def files_of(files: Files, *names: str) -> TlsFiles:
    return TlsFiles(
        cert_file=files.cert_file, key_file=files.key_file, ca_file=files.ca_file, names=names
    )


def test_files_are_read_when_they_change_and_not_before(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a")
    reader = Reader(file)
    followed = Followed("texts", reader, [file])
    followed.look()
    assert reader.count == 0
    file.write_text("bb")
    followed.look()
    followed.look()
    assert reader.count == 1
    file.unlink()
    followed.look()
    file.write_text("bb")
    followed.look()
    assert reader.count == 3


def test_a_key_and_the_certificate_of_another_are_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is exchanged after the first file of the first reading."""
    authority, files = Authority(), Files(tmp_path)
    old, new = authority.issue("a"), authority.issue("a")
    files.write(old, authority)
    read_bytes = Path.read_bytes
    read: list[Path] = []

    def read_and_exchange(path: Path) -> bytes:
        content = read_bytes(path)
        read.append(path)
        if len(read) == 1:
            files.write(new, authority)
        return content

    monkeypatch.setattr(Path, "read_bytes", read_and_exchange)
    pem = read_pem(files_of(files))
    assert (new.key, new.chain) == pem.pair
    assert 6 == len(read), "once more, and not for ever"


def test_a_link_that_leads_elsewhere_is_a_change(tmp_path: Path) -> None:
    authority, files = Authority(), Files(tmp_path)
    files.write(authority.issue("a"), authority)
    reader = Reader(files.cert_file)
    followed = Followed("certificates", reader, [files.cert_file])
    files.write(authority.issue("b"), authority)
    followed.look()
    assert reader.count == 1


def test_a_file_that_surprises_its_reader_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.write_text("a")
    reader = Reader(file)
    reader.error = RecursionError("brackets in brackets")
    followed = Followed("rules", reader, [file])
    file.write_text("bb")
    followed.look()
    reader.error = None
    file.write_text("ccc")
    followed.look()
    assert reader.count == 2
    assert "brackets in brackets" in caplog.text


def test_unusable_files_are_logged_once_and_read_again_when_they_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.write_text("a")
    reader = Reader(file)
    reader.error = OptionError("it is odd")
    followed = Followed("rules", reader, [file])
    file.write_text("bb")
    followed.look()
    followed.look()
    assert ["the new rules cannot be used, the old stay: it is odd"] == caplog.messages
    reader.error = None
    file.write_text("ccc")
    followed.look()
    assert reader.count == 2


def test_files_that_are_named_later_are_followed_too(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("a")
    second.write_text("a")
    reader = Reader(first, second)
    followed = Followed("texts", reader, [first])
    first.write_text("bb")
    followed.look()
    second.write_text("bb")
    followed.look()
    assert reader.count == 2


def test_certificates_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path) -> None:
    assert mesh_tls(None) is None
    authority, files = Authority(), Files(tmp_path)
    with pytest.raises(OptionError, match=r"the private key .* cannot be read: No such file"):
        MeshTls(files_of(files))
    leaf = authority.issue("a")
    files.write(leaf, authority)
    MeshTls(files_of(files, "spiffe://mesh/*"))
    with pytest.raises(OptionError, match="stands for the whole last segment"):
        MeshTls(files_of(files, "spiffe://mesh/a*"))
    files.key_file.write_bytes(authority.issue("other").key)
    with pytest.raises(OptionError, match=r"certificate chain.*tls\.key"):
        MeshTls(files_of(files))


def test_native_settings_refuse_what_lets_nobody_in() -> None:
    authority = Authority()
    leaf = authority.issue("a")
    pair = (leaf.key, leaf.chain)
    with pytest.raises(ValueError, match="the list of names is empty"):
        _router.ServerTls([pair], authority.certificate, True, allowed_names=[])
    with pytest.raises(ValueError, match="cannot be checked without any"):
        _router.ServerTls([pair], None, False, allowed_names=["a"])
    tls = _router.ServerTls([pair], authority.certificate, True)
    with pytest.raises(ValueError, match="cannot be checked without any"):
        tls.reload([pair], None)
    with pytest.raises(ValueError, match="names no certificate"):
        _router.ClientTls(authority.certificate, None, None, None, allowed_names=["*"])
    with pytest.raises(ValueError, match="32 bytes, this one has 3"):
        _router.AccessRule(name="a", paths=["/a"], token_hashes=[b"abc"])
    with pytest.raises(ValueError, match="asks for nothing"):
        _router.AccessPolicy([_router.AccessRule(name="a", paths=["/a"])])


def ends_of(*sources: Callable[[Scrape], object]) -> dict[str, float]:
    """Return when certificates end, in hours from now, by whom they are for."""
    scrape = Scrape({})
    for source in sources:
        source(scrape)
    (family,) = scrape.families()
    assert "pyserve_certificate_end_time_seconds" == family.name
    return {
        each.labels["certificate"]: (each.value - time.time()) / 3600 for each in family.samples
    }


def test_when_certificates_end_is_told_of_those_that_are_used(tmp_path: Path) -> None:
    authority, files = Authority(), Files(tmp_path)
    files.write(authority.issue("a"), authority)
    mesh = MeshTls(files_of(files))
    ingress = IngressSecurity(SecuritySettings(tls=files_of(files)))
    sources = mesh.add_metrics, ingress.add_metrics
    assert {"mesh": pytest.approx(1, abs=0.1), "ingress": pytest.approx(1, abs=0.1)} == ends_of(
        *sources
    )

    files.write(authority.issue("a", lifetime=datetime.timedelta(hours=8)), authority)
    mesh._followed.look()
    ingress.look()
    assert {"mesh": pytest.approx(8, abs=0.1), "ingress": pytest.approx(8, abs=0.1)} == ends_of(
        *sources
    )

    files.cert_file.write_text("no certificate")
    mesh._followed.look()
    ingress.look()
    assert {8} == {round(each) for each in ends_of(*sources).values()}, "the old one is used"


def test_an_ingress_without_a_certificate_tells_of_none() -> None:
    scrape = Scrape({})
    IngressSecurity(SecuritySettings()).add_metrics(scrape)
    assert [] == scrape.families()
