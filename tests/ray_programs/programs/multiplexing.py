"""Model multiplexing behind another deployment; a header or the caller names the model."""

from starlette.requests import Request

import pyserve as serve
from pyserve.handle import DeploymentHandle


class Forecaster:
    def __init__(self, model_id: str, unloaded: list[str]) -> None:
        self.model_id = model_id
        self._unloaded = unloaded

    def forecast(self, series: list[float]) -> float:
        return sum(series) / len(series) + len(self.model_id)

    def __del__(self) -> None:
        self._unloaded.append(self.model_id)


@serve.deployment
class Forecasts:
    def __init__(self) -> None:
        self.unloaded: list[str] = []

    @serve.multiplexed(max_num_models_per_replica=2)
    async def get_model(self, model_id: str) -> Forecaster:
        return Forecaster(model_id, self.unloaded)

    async def __call__(self, series: list[float]) -> tuple[str, float]:
        model = await self.get_model(serve.get_multiplexed_model_id())
        return model.model_id, model.forecast(series)

    def seen_off(self) -> list[str]:
        return self.unloaded


@serve.deployment
class Ingress:
    def __init__(self, forecasts: DeploymentHandle) -> None:
        self._forecasts = forecasts

    async def __call__(self, http_request: Request) -> dict[str, object]:
        model_id = serve.get_multiplexed_model_id()
        handle = self._forecasts.options(multiplexed_model_id=model_id)
        found, value = await handle.remote(await http_request.json())
        return {"model_id": found, "forecast": value}


app = Ingress.bind(Forecasts.bind())
