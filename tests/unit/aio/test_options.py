"""Options that the native side refuses."""

import pytest

import pyserve.aio


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
