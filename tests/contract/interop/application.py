"""The test service as a deployment. Its processes find the wire log by their environment."""

import os
from pathlib import Path

import pyserve
from tests.contract.interop.service import InteropServicer
from tests.contract.interop.wire import LOG_VARIABLE, WireLog

app = pyserve.deployment(InteropServicer).bind(WireLog(Path(os.environ[LOG_VARIABLE])))
