"""The development loop: the same application in local testing mode, and in a mesh by handle."""

from starlette.requests import Request

import pyserve as serve
from pyserve.handle import DeploymentHandle, DeploymentResponse


@serve.deployment
class Doubler:
    def double(self, text: str) -> str:
        return f"{text} {text}"


@serve.deployment
class HelloDeployment:
    def __init__(self, doubler: DeploymentHandle) -> None:
        self.doubler = doubler

    async def say_hello_twice(self, name: str) -> str:
        return await self.doubler.double.remote(f"Hello, {name}!")

    async def __call__(self, request: Request) -> str:
        return await self.say_hello_twice(request.query_params["name"])


app = HelloDeployment.bind(Doubler.bind())

if __name__ == "__main__":
    handle: DeploymentHandle = serve.run(app, _local_testing_mode=True)
    print("local:", handle.say_hello_twice.remote(name="Ray").result())
    serve.shutdown()

    serve.start(http_options={"port": 0})
    handle = serve.run(app, name="hello", route_prefix="/hello")
    response: DeploymentResponse = handle.say_hello_twice.remote(name="mesh")
    print("mesh:", response.result())
    print(serve.status().applications["hello"].status)
    serve.delete("hello")
    print("hello" in serve.status().applications)
    serve.shutdown()
