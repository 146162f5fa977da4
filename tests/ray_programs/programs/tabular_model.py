"""A model of tables, fitted when the replica starts, behind a pydantic schema."""

from typing import Literal

import numpy as np
from pydantic import BaseModel
from starlette.requests import Request

import pyserve as serve


class Row(BaseModel):
    age: float
    income: float
    plan: Literal["basic", "pro"] = "basic"


@serve.deployment(num_replicas=1)
class Scores:
    def __init__(self) -> None:
        rows = np.array([[0, 0, 1], [10, 0, 1], [0, 10, 1], [10, 10, 1]])
        self.weights = np.linalg.lstsq(rows, rows @ [2.0, 3.0, 1.0])[0]

    async def __call__(self, request: Request) -> dict[str, object]:
        rows = [Row.model_validate(each) for each in (await request.json())["rows"]]
        scores = self.predict(np.array([[row.age, row.income] for row in rows]))
        return {"scores": scores.round(6), "plans": [row.plan for row in rows]}

    def predict(self, rows: np.ndarray) -> np.ndarray:
        with_ones = np.hstack([rows, np.ones((len(rows), 1))])
        return with_ones @ self.weights


app = Scores.bind()
