"""Tasks from a queue: the module loads, and says what to do instead where it is used."""

from typing import Any

from pyserve.schema import CeleryAdapterConfig, TaskProcessorConfig
from pyserve.task_consumer import instantiate_adapter_from_config, task_consumer, task_handler


def consumer() -> object:
    config = TaskProcessorConfig(
        queue_name="q", adapter_config=CeleryAdapterConfig(broker_url="filesystem://")
    )

    @task_consumer(task_processor_config=config)
    class Consumer:
        @task_handler(name="process")
        def process(self, data: Any) -> str:
            return f"processed: {data}"

    return Consumer, instantiate_adapter_from_config(task_processor_config=config)
