"""``pyserve call`` against a server of grpcio with reflection, v1alpha only as grpcio has it."""

import base64
import json
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result
from grpc_reflection.v1alpha import reflection

from pyserve.cli.call import call
from services.echo import echo_pb2, echo_pb2_grpc


class Service(echo_pb2_grpc.EchoServicer):
    def Echo(self, request: Any, context: Any) -> Any:
        pairs = dict(context.invocation_metadata())
        return echo_pb2.EchoReply(payload=request.payload + pairs.get("x-suffix", "").encode())

    def EchoStream(self, request: Any, context: Any) -> Any:
        for _ in range(request.messages):
            yield echo_pb2.EchoReply(payload=request.payload)

    def PerformStreamSync(self, request: Any, context: Any) -> Any:
        yield echo_pb2.PerformReply(payload=b"first")
        context.abort(grpc.StatusCode.UNAVAILABLE, "its replica has ended")

    def PerformSync(self, request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "took longer than 1 s")

    def EchoSync(self, request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")

    def EchoSuspend(self, request: Any, context: Any) -> Any:
        # Until its client has gone, or the test fails.
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait(30)

    def Perform(self, request: Any, context: Any) -> Any:
        return echo_pb2.PerformReply(payload=bytes(5 << 20))

    def Collect(self, requests: Any, context: Any) -> Any:
        return echo_pb2.CollectReply(messages=sum(1 for _ in requests))

    def Converse(self, requests: Any, context: Any) -> Any:
        for request in requests:
            yield echo_pb2.PerformReply(payload=request.payload)

    def Count(self, request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "nothing to count")


@pytest.fixture
def address() -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    echo_pb2_grpc.add_EchoServicer_to_server(Service(), server)
    # The second is one of those that handles call: without a .proto.
    reflection.enable_server_reflection(["services.echo.Echo", "default.Echo"], server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait(30)


def run(address: str, *arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(call, [*arguments, "--address", address], input=text)


def lines(result: Result) -> list[Any]:
    assert 0 == result.exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_unary_call_prints_its_response_as_json(address: str) -> None:
    assert [{"payload": "aGk="}] == lines(run(address, "services.echo.Echo/Echo", "payload=hi"))


def test_metadata_goes_with_the_call(address: str) -> None:
    found = run(address, "services.echo.Echo/Echo", "payload=hi", "-H", "x-suffix=!")
    assert [{"payload": "aGkh"}] == lines(found)


def test_a_stream_prints_one_line_for_each_message(address: str) -> None:
    found = run(address, "/services.echo.Echo/EchoStream", "payload=a", "messages=3", "--timing")
    assert [{"payload": "YQ=="}] * 3 == lines(found)
    assert "3 response(s) in " in found.stderr


def test_request_streams_take_messages_from_standard_input(address: str) -> None:
    text = '{"payload": "YQ=="} {"payload": "Yg=="}'
    collected = run(address, "services.echo.Echo/Collect", "-", text=text)
    assert [{"messages": "2"}] == lines(collected)
    conversed = run(address, "services.echo.Echo/Converse", "-", text=text)
    assert [{"payload": "YQ=="}, {"payload": "Yg=="}] == lines(conversed)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["services.echo.Ecko/Echo"], "no service 'services.echo.Ecko'; did you mean services"),
        (["Echo/Echo"], "no service 'Echo'; did you mean services.echo.Echo?"),
        (["ddefault.Echo/Echo"], "no service 'ddefault.Echo'; it has services.echo.Echo"),
        (["services.echo.Echo/Ehco"], "has no method 'Ehco'; did you mean Echo?"),
        (["services.echo.Echo/Count"], "FAILED_PRECONDITION: nothing to count"),
    ],
)
def test_a_refusal_says_why(address: str, arguments: list[str], says: str) -> None:
    found = run(address, *arguments)
    assert 0 != found.exit_code
    assert says in str(found.exception)


def test_a_unary_method_takes_one_message_only(address: str) -> None:
    found = run(address, "services.echo.Echo/Echo", "-", text="{}{}")
    assert 2 == found.exit_code
    assert "takes one request, but 2 are given" in found.stderr


def test_a_server_that_is_not_there_is_named() -> None:
    found = run("127.0.0.1:1", "services.echo.Echo/Echo", "--timeout", "5")
    assert "at 127.0.0.1:1: UNAVAILABLE" in str(found.exception)


def test_a_stream_that_is_cut_is_no_matter_of_tls(address: str) -> None:
    found = run(address, "services.echo.Echo/PerformStreamSync")
    text = str(found.exception)
    assert [{"payload": "Zmlyc3Q="}] == [json.loads(line) for line in found.stdout.splitlines()]
    assert "UNAVAILABLE: its replica has ended; the server was reached" in text
    assert "--tls" not in text


def test_the_limit_of_the_command_is_named_with_its_option(address: str) -> None:
    found = run(address, "services.echo.Echo/EchoSuspend", "--timeout", "0.3")
    text = str(found.exception)
    assert "DEADLINE_EXCEEDED" in text
    assert "it was given up after 0.3 s; --timeout SECONDS gives it longer" in text


def test_the_limit_of_the_server_is_not_taken_for_it(address: str) -> None:
    found = run(address, "services.echo.Echo/PerformSync")
    assert str(found.exception).endswith("DEADLINE_EXCEEDED: took longer than 1 s")


def test_a_missing_token_is_named_with_its_option(address: str) -> None:
    found = run(address, "services.echo.Echo/EchoSync")
    assert "UNAUTHENTICATED: no token; show a token with --metadata" in str(found.exception)


def test_an_answer_may_have_any_length(address: str) -> None:
    (reply,) = lines(run(address, "services.echo.Echo/Perform"))
    assert 5 << 20 == len(base64.b64decode(reply["payload"]))
