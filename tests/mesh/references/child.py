"""A process of its own that holds or fetches: says what it did, one line of JSON at a time.

``holder FOLDER``: holds an array of 100 MiB and prints its descriptor; then one line for each
line it reads, with what it holds.
``consumer FOLDER WIRE…``: fetches the descriptors and prints what it saw; then waits.
"""

import json
import sys
from pathlib import Path

import numpy

from pyserve.references import Descriptor, References
from pyserve.serializers import codec

TOKEN = b"the mesh token, 32 bytes of it!!"
ARRAY_BYTES = 100 * 2**20


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def resident_bytes() -> dict[str, int]:
    """Memory of this process by kind: its own, and what it maps of others."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem")}


def hold(references: References) -> None:
    array = numpy.arange(ARRAY_BYTES // 8, dtype="f8")
    descriptors = [
        references.hold(codec(name).encode({"array": array}), name).to_wire()
        for name in ("pickle", "msgpack")
    ]
    del array
    say(descriptors=descriptors)
    for _ in sys.stdin:
        say(held_bytes=references.held_bytes, held_count=references.held_count)


def consume(references: References, wires: list[str]) -> None:
    kept = []
    for wire in wires:
        descriptor = Descriptor.from_wire(json.loads(wire))
        before = resident_bytes()
        body = references.fetch_blocking(descriptor, 20.0)
        array = codec(descriptor.codec).decode(body)["array"]  # type: ignore[index]
        start = numpy.frombuffer(body, "u1").ctypes.data
        total = float(array.sum())
        after = resident_bytes()
        kept.append(array)
        say(
            total=total,
            is_inside=start <= array.ctypes.data < start + descriptor.size_bytes,
            alignment=array.ctypes.data % 64,
            writeable=bool(array.flags.writeable),
            own_growth=after["RssAnon"] - before["RssAnon"],
            mapped_growth=after["RssShmem"] - before["RssShmem"],
        )
        del body, array
    for line in sys.stdin:
        if line.strip() == "release":
            kept.clear()
            for wire in wires:
                references.release(Descriptor.from_wire(json.loads(wire)))
            say(released=len(wires))


def main() -> None:
    role, folder, *wires = sys.argv[1:]
    references = References(node="here", token=TOKEN, run_dir=Path(folder))
    try:
        if role == "holder":
            hold(references)
        else:
            consume(references, wires)
    finally:
        references.close()


if __name__ == "__main__":
    main()
