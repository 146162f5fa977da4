"""Options that the native side refuses."""

import pytest

import pyserve.aio
from pyserve.aio._options import read_server_options


@pytest.mark.parametrize("name", ["keepalive_time", "keepalive_timeout"])
async def test_negative_times_of_channels_are_refused_by_name(name: str) -> None:
    options = [("grpc.keepalive_time_ms", 1000), (f"grpc.{name}_ms", -1)]
    with pytest.raises(ValueError, match=rf"{name}_s is -0\.001, use 0 or more seconds"):
        pyserve.aio.insecure_channel("127.0.0.1:1", options=options)


async def test_a_negative_wait_between_dials_is_refused_by_name() -> None:
    options = [("grpc.max_reconnect_backoff_ms", -1)]
    with pytest.raises(ValueError, match=r"reconnect_backoff_max_s is -0\.001"):
        pyserve.aio.insecure_channel("127.0.0.1:1", options=options)


async def test_times_beyond_what_a_clock_holds_are_far_away() -> None:
    channel = pyserve.aio.insecure_channel(
        "127.0.0.1:1",
        options=[("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 10**25)],
    )
    await channel.close()


async def test_a_negative_size_is_refused_with_its_option() -> None:
    name = "pyserve.idle_connection_memory_mb"
    with pytest.raises(ValueError, match=f"option {name}=-1 is not valid: a number of MiB from 0"):
        pyserve.aio.server(options=[(name, -1)])


@pytest.mark.parametrize(
    ("asked", "absolute", "taken", "of_clients"),
    [
        (None, None, 16384, 8192),
        (4096, None, 4096, 8192),
        (40_000, None, 40_000, 40_000),
        (None, 50_000, 50_000, 40_000),
        (20_000, 50_000, 50_000, 20_000),
    ],
)
def test_limits_of_metadata_are_read_as_grpc_reads_them(
    asked: int | None, absolute: int | None, taken: int, of_clients: int
) -> None:
    """The soft one is 80 % of the absolute one if it is not given."""
    names = ("grpc.max_metadata_size", asked), ("grpc.absolute_max_metadata_size", absolute)
    given = [(name, value) for name, value in names if value is not None]
    options = read_server_options(given, None)
    assert (taken, of_clients) == (options.max_metadata_bytes, options.client_metadata_bytes)
