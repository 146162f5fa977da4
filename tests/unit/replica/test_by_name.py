"""Which methods of a plain class answer RPCs, by their names."""

from __future__ import annotations

from pyserve.replica.handlers import find_by_name
from tests.ray_programs.programs.fruit_pb2 import ModelName

FUNCTIONS = ["tests.ray_programs.programs.fruit_pb2_grpc:add_FruitServiceServicer_to_server"]


class Models:
    def Multiplexing(self, request: ModelName) -> ModelName:
        return request


class MoreModels(Models):
    def __call__(self, request: object) -> object:
        return request


def test_a_class_answers_what_it_or_a_base_defines():
    """Calling a class makes an instance; the class is not a method of that instance."""
    paths = [sorted(find_by_name(each, FUNCTIONS, ())[1]) for each in (Models, MoreModels)]

    models = "/fruit.FruitService/Multiplexing"
    assert [[models], [models, "/fruit.FruitService/__call__"]] == [sorted(each) for each in paths]
