"""What travels instead of a value: where it is, how large it is, and how to read it."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A value that a process of the mesh holds.

    Attributes:
        holder_id: Of the process: a replica's id, or one made for a driver.
        node: The machine of the holder.
        unix_path: Of the holder's socket on that machine; ``""``: it has none.
        key: Names the value at its holder; nobody can guess it.
        size_bytes: Of the body.
        codec: Name of the codec that reads the body.
        application: Of the deployment whose replica holds it; ``""``: no replica does.
        deployment: That deployment.
    """

    holder_id: str
    node: str
    unix_path: str
    key: str
    size_bytes: int
    codec: str
    application: str = ""
    deployment: str = ""

    def to_wire(self) -> list[object]:
        """Return the fields in order, for msgpack."""
        return list(astuple(self))

    @classmethod
    def from_wire(cls, wire: object) -> Descriptor:
        """Return the descriptor that ``to_wire`` was called on.

        Raises:
            ValueError: It is not what ``to_wire`` returns.
        """
        if not isinstance(wire, list | tuple) or len(wire) != len(_FIELDS):
            raise ValueError(f"a descriptor has {len(_FIELDS)} fields: {wire!r}")
        for name, value in zip(_FIELDS, wire, strict=True):
            if name == "size_bytes":
                is_right = type(value) is int and value >= 0
            else:
                is_right = isinstance(value, str)
            if not is_right:
                raise ValueError(f"a descriptor has the {name} {value!r}")
        return cls(**dict(zip(_FIELDS, wire, strict=True)))


_FIELDS = tuple(field.name for field in fields(Descriptor))
