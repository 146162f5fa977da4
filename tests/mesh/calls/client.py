"""A client in a process of its own: holds calls of every kind until it is killed.

Arguments: where the ingress listens, and how many calls of each kind to make.
"""

import asyncio
import sys

import grpc.aio

from services.echo import echo_pb2, echo_pb2_grpc


async def hold(address: str, each: int) -> None:
    """Make the calls and wait for their ends."""
    slow = echo_pb2.PerformRequest(delay_s=600)
    async with grpc.aio.insecure_channel(address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        calls: list[grpc.aio.Call] = []
        for _ in range(each):
            calls.append(stub.Perform(slow))
            calls.append(stub.PerformStream(echo_pb2.PerformStreamRequest(messages=1, each=slow)))
            collecting = stub.Collect()
            await collecting.write(echo_pb2.PerformRequest())
            conversing = stub.Converse()
            await conversing.write(slow)
            calls += [collecting, conversing]
        await asyncio.gather(*(call.code() for call in calls))


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], int(sys.argv[2])))
