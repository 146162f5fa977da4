"""``python -m pyserve.replica``: the entry of launchers, which wires a replica's parts."""

import sys

from pyserve.garbage import end_uncollected, importing

with importing():
    from contextlib import AbstractContextManager

    from pyserve.config import MeshSettings
    from pyserve.control.home import read_token
    from pyserve.observe.metrics import ProcessMetrics
    from pyserve.replica.process import main
    from pyserve.replica.spare import replica_arguments


def _show_metrics(
    settings: MeshSettings, controller: str, token: bytes
) -> AbstractContextManager[tuple[ProcessMetrics, str]]:
    # Imported only here: not needed where the ingress of the node shows the metrics.
    from pyserve.admin import showing_metrics

    return showing_metrics(settings, controller, token)


_arguments = replica_arguments(sys.argv[1:])
# A spare whose launcher has gone, or no longer needs it, ends without having served.
_status = 0 if _arguments is None else main(read_token, _show_metrics, _arguments)
# Not before: an exception that ends this process, such as that of a signal while the instance is
# constructed, keeps the instance until then.
end_uncollected()
sys.exit(_status)
