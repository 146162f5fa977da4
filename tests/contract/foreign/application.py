"""What the foreign clients call: services.echo, with compression on demand."""

from services.echo.service import Echo
from tests.contract.foreign.compressing import CompressOnDemand

# mypy does not look at what class decorators return.
app = Echo.options(interceptors=[CompressOnDemand()]).bind()  # type: ignore[attr-defined]
