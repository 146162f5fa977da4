"""Constants of the control plane, each with its reason."""

from __future__ import annotations

# A dead replica is replaced at once (most deaths are single), then after 1 s, 2 s, 4 s ... so
# that code which dies on arrival costs at most one start a minute.
RESTART_BACKOFF_INITIAL_S = 1.0
RESTART_BACKOFF_FACTOR = 2.0
RESTART_BACKOFF_MAX_S = 60.0
# A replica that served this long has shown that it can: its death counts as a first one again.
RESTART_FORGET_S = RESTART_BACKOFF_MAX_S

# Failed health checks in a row that replace a replica.
HEALTH_FAILURES_MAX = 3

# Starts of one slot that may end without a word from user code (killed, cannot be spawned)
# before the slot counts as failed: one may be bad luck, three in a row are not.
SILENT_START_FAILURES_MAX = 3

# Starts of a version that may fail for each of its replicas, where max_constructor_retry_count
# does not allow less: as Ray Serve counts.
START_FAILURES_PER_REPLICA_MAX = 3

# A replica whose Join broke while its process lives may come back; its own backoff reaches
# 2 s at most, so ten seconds are several attempts.
REJOIN_TIMEOUT_S = 10.0

# How long a router waits for its first view. A controller answers in milliseconds; one that has
# just followed another gives replicas time to join again first, and a busy machine gets as much.
FIRST_VIEW_TIMEOUT_S = 2 * REJOIN_TIMEOUT_S

# A `pyserve run` whose connection broke without a goodbye is dead, or reconnects at once. This is
# time enough for that on a busy machine. After it, what the run deployed is ended, since nobody
# looks after it any more.
RUN_RETURN_TIMEOUT_S = 10.0

# How often a replica that runs is asked for a sign of life, and how long its answer may take
# before people are told. User code that keeps the interpreter's lock for a second or two (an
# import, a large pickle) is ordinary; a tenth of the default health_check_timeout_s is not.
# A question costs 4 ms of processor time at both ends together, so once a second would be as much
# as an idle mesh may take; what waits for answers looks each second.
PING_PERIOD_S = 8.0
SILENT_AFTER_S = 4.0
LIVENESS_CHECK_PERIOD_S = 1.0

# How long the deployments that others call wait at most for their callers to end, once those have
# been told to: as long as Ray Serve gives each tier.
CALLERS_END_TIMEOUT_S = 30.0

# Between the end of the drain's grace and the kill: the replica ends streams and exits itself.
KILL_MARGIN_S = 2.0

# Changes of the view within 20 ms travel as one update (design 9).
WATCH_COALESCE_S = 0.02
# Updates that may wait for a slow watcher before it gets a snapshot instead.
WATCH_QUEUE_LENGTH_MAX = 64

# A router or replica that lost the controller dials again after 50 ms, doubling up to 2 s:
# a restarted controller is found soon, and a dead one costs half a connection a second.
REDIAL_BACKOFF_INITIAL_S = 0.05
REDIAL_BACKOFF_FACTOR = 2.0
REDIAL_BACKOFF_MAX_S = 2.0
REDIAL_BACKOFF_JITTER = 0.2

# How long a starter waits for a controller to listen: the time of an interpreter's start on a
# busy machine, with room.
CONTROLLER_START_TIMEOUT_S = 60.0

# How long commands and drivers wait for the successor of a killed controller. If the supervisor was
# killed too there is no successor, and a command waits this long in vain.
CONTROLLER_RETURN_TIMEOUT_S = 5.0

# A mesh's answers to a starter in a hurry: it stays for other runs, or only waits to end.
MESH_STAYS, MESH_ENDS = b"s", b"e"

# The default limit of a message to the controller. No request of a driver or a router comes near
# it.
CONTROL_MESSAGE_BYTES_MAX = 1 << 20
# A replica says which services it has, with the files that describe them; ten times what the
# largest collections of such files have.
JOIN_MESSAGE_BYTES_MAX = 16 << 20
# An application whose classes and arguments travel by value. Half of what protobuf can read: the
# controller holds it several times while it takes it apart.
DEPLOY_MESSAGE_BYTES_MAX = 1 << 30

# A machine that vanishes, or a process that is stopped, does not close its connections. So peers
# are pinged at this period, and count as gone when no answer comes in time.
KEEPALIVE_PERIOD_S = 10.0
KEEPALIVE_TIMEOUT_S = 5.0

# How often the whole state of a mesh is copied and synced to disk, if it has changed. Changes of
# this time may be missing if the state's own file is lost. Arbitrary.
STATE_COPY_PERIOD_S = 10.0

# A mesh's shutdown when nobody says how long: the largest default grace of a replica.
SHUTDOWN_GRACE_S = 20.0

# Bytes of one line of a replica's output that are kept; longer lines are cut, and say so.
OUTPUT_LINE_BYTES_MAX = 16 * 1024
# The same of a line that is an object of JSON, whose values are cut instead: log files have it
# whole. Room for a record about a long prompt or a small image; a reader holds as much for each
# replica that is in the middle of such a line.
OUTPUT_OBJECT_BYTES_MAX = 1 << 20
# The end of a text that is about to be overwritten in its row, as progress bars are.
PASSING = "\r"

# Limits of the file with the output of a replica that outlives its controller. A controller empties
# it once it has read the first; a replica empties it beyond the second if no controller does.
OUTPUT_FILE_KEPT_BYTES = 1 << 20
OUTPUT_FILE_BYTES_MAX = 16 << 20
# The least between two reads of output, and how often a replica looks at its file's size.
OUTPUT_READ_PERIOD_S = 0.2
OUTPUT_BOUND_PERIOD_S = 5.0


def restart_delay_s(failures: int, max_s: float = RESTART_BACKOFF_MAX_S) -> float:
    """Return how long to wait before the start that follows the ``failures``-th death in a row."""
    if failures <= 1:
        return 0.0
    # The exponent is bounded so that a long row of failures does not overflow.
    exponent = min(failures - 2, 16)
    return min(RESTART_BACKOFF_INITIAL_S * RESTART_BACKOFF_FACTOR**exponent, max_s)
