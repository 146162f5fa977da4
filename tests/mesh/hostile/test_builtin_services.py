"""What the ingress answers itself is as bounded as what replicas do: they may share a process."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator

import grpc
import psutil
import pytest

from pyserve.control.discovery import read_record
from pyserve.inference import open_inference_pb2 as pb
from tests.mesh.control.peers import message, peer_of
from tests.support.mesh import RunningMesh, running_mesh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HEALTH = "/grpc.health.v1.Health/Check"
INFER = "/inference.GRPCInferenceService/ModelInfer"
RULES = f"""
open: [health]
rules:
  - name: models
    paths: ["{INFER}"]
    anonymous: true
"""
TIMEOUT_S = 20.0
RESOURCE_EXHAUSTED = 8
BODY_BYTES = 256 << 20
RSS_GROWTH_BYTES_MAX = 32 << 20
_MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """Run several models, so that the ingress passes their calls on; nobody but health is open."""
    rules = tmp_path_factory.mktemp("rules") / "access.yaml"
    rules.write_text(RULES)
    environment = {"PYSERVE_ACCESS_FILE": str(rules)}
    with running_mesh("tests.mesh.hostile.models:app", environment=environment) as running:
        yield running


def rss_bytes_of(mesh: RunningMesh) -> int:
    record = read_record(mesh.home)
    assert record is not None
    return int(psutil.Process(record.pid).memory_info().rss)


def bomb(size_bytes: int) -> bytes:
    """Return that many zeros in gzip, which says of itself that it holds none."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        for _ in range(size_bytes // _MEBIBYTE):
            file.write(bytes(_MEBIBYTE))
    return packed.getvalue()[:-4] + bytes(4)


@pytest.mark.parametrize("path", [HEALTH, INFER])
def test_a_message_without_end_is_refused_at_its_head(mesh: RunningMesh, path: str) -> None:
    before_bytes = rss_bytes_of(mesh)
    with peer_of(mesh.address) as peer:
        peer.begin(path, body=message(BODY_BYTES))
        peer.push(BODY_BYTES)
        assert RESOURCE_EXHAUSTED == peer.status()
    assert rss_bytes_of(mesh) - before_bytes <= RSS_GROWTH_BYTES_MAX


@pytest.mark.parametrize(("path", "size_bytes"), [(HEALTH, 32 << 20), (INFER, BODY_BYTES)])
def test_a_bomb_stops_at_the_limit(mesh: RunningMesh, path: str, size_bytes: int) -> None:
    """The size of a message after decompression counts too."""
    packed = bomb(size_bytes)
    with peer_of(mesh.address) as peer:
        body = b"\1" + len(packed).to_bytes(4, "big") + packed
        peer.begin(path, (("grpc-encoding", "gzip"),))
        for at in range(0, len(body), 16_384):
            peer.send(body[at : at + 16_384])
        peer.half_close()
        assert RESOURCE_EXHAUSTED == peer.status()
        assert "decompressed" in peer.answer["grpc-message"]


def test_models_get_what_their_deployments_take(mesh: RunningMesh) -> None:
    """One takes 8 MiB, so all calls come as far as that, and end where theirs takes less."""
    with grpc.insecure_channel(mesh.address) as channel:
        infer = channel.unary_unary(
            INFER,
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )

        def size_of(model: str, size_bytes: int) -> int:
            tensor = pb.ModelInferRequest.InferInputTensor(
                name="bytes", datatype="UINT8", shape=[size_bytes]
            )
            request = pb.ModelInferRequest(
                model_name=model, inputs=[tensor], raw_input_contents=[bytes(size_bytes)]
            )
            reply = infer(request, timeout=TIMEOUT_S)
            return int.from_bytes(reply.raw_output_contents[0], "little")

        assert 6 << 20 == size_of("large", 6 << 20)
        assert 1 << 20 == size_of("small", 1 << 20)
        for model, size_bytes in (("small", 6 << 20), ("large", 9 << 20)):
            with pytest.raises(grpc.RpcError) as refused:
                size_of(model, size_bytes)
            assert grpc.StatusCode.RESOURCE_EXHAUSTED is refused.value.code()  # type: ignore[attr-defined]
