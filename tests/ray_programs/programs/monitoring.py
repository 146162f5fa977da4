"""Logs by the logger of Ray Serve, request ids, and a logging configuration."""

import logging

from starlette.requests import Request

import pyserve as serve
from pyserve.handle import DeploymentHandle
from pyserve.schema import LoggingConfig

logger = logging.getLogger("ray.serve")


@serve.deployment(logging_config={"log_level": "DEBUG", "enable_access_log": False})
class Model:
    def __call__(self, name: str) -> str:
        logger.info("the model got %s", name)
        return f"Hello {name}, {serve.get_replica_context().deployment} speaking"


@serve.deployment(logging_config=LoggingConfig(encoding="JSON"))
class Router:
    def __init__(self, model: DeploymentHandle) -> None:
        self.model = model

    async def __call__(self, request: Request) -> str:
        logger.info("Hello world!", extra={"serve_access_log": False})
        return await self.model.remote(request.query_params["name"])


@serve.deployment
class Silenced:
    def __init__(self) -> None:
        logger.setLevel(logging.ERROR)

    def __call__(self) -> int:
        logger.info("silenced line")
        logger.error("loud line")
        return 1


app = Router.bind(Model.bind())
silenced = Silenced.bind()

if __name__ == "__main__":
    import httpx

    serve.start(http_options={"port": 0})
    url = f"http://{serve.status().addresses[0]}"
    serve.run(app, name="app", logging_config=LoggingConfig(encoding="JSON"))
    response = httpx.get(url, params={"name": "Ada"}, headers={"X-Request-ID": "123-234"})
    print(response.text)
    print(response.headers["X-Request-ID"])
    serve.run(silenced, name="silenced", route_prefix="/silenced")
    print(httpx.get(f"{url}/silenced").text)
    application = serve.status().applications["app"]
    print(application.status, *(f"{n}={d.status}" for n, d in application.deployments.items()))
    serve.shutdown()
