"""Several applications in one mesh; one of them calls another by its name."""

from starlette.requests import Request

import pyserve as serve
from pyserve.handle import DeploymentHandle


@serve.deployment
class Classifier:
    async def __call__(self, http_request: Request) -> str:
        return self.classify((await http_request.body()).decode())

    def classify(self, text: str) -> str:
        return "question" if text.endswith("?") else "statement"


@serve.deployment
class Router:
    def __init__(self, classifier_app: str) -> None:
        self._handle: DeploymentHandle = serve.get_app_handle(classifier_app)

    async def __call__(self, http_request: Request) -> dict[str, str]:
        text = (await http_request.body()).decode()
        return {"kind": await self._handle.classify.remote(text), "text": text}


classifier_app = Classifier.bind()
router_app = Router.bind("text-classifier")
