import datetime

from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf import wrappers_pb2 as _wrappers_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Colour(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLOUR_UNSPECIFIED: _ClassVar[Colour]
    COLOUR_RED: _ClassVar[Colour]
    COLOUR_DARK: _ClassVar[Colour]
COLOUR_UNSPECIFIED: Colour
COLOUR_RED: Colour
COLOUR_DARK: Colour

class Bytes(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: bytes
    def __init__(self, bytes: _Optional[bytes] = ...) -> None: ...

class Holder(_message.Message):
    __slots__ = ("single", "lists", "maps", "choice", "any", "keys")
    SINGLE_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    ANY_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    single: Single
    lists: Lists
    maps: Maps
    choice: Choice
    any: _any_pb2.Any
    keys: Keys
    def __init__(self, single: _Optional[_Union[Single, _Mapping]] = ..., lists: _Optional[_Union[Lists, _Mapping]] = ..., maps: _Optional[_Union[Maps, _Mapping]] = ..., choice: _Optional[_Union[Choice, _Mapping]] = ..., any: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., keys: _Optional[_Union[Keys, _Mapping]] = ...) -> None: ...

class Single(_message.Message):
    __slots__ = ("any_field", "duration_field", "empty_field", "field_mask_field", "struct_field", "value_field", "list_value_field", "timestamp_field", "double_value_field", "float_value_field", "int64_value_field", "uint64_value_field", "int32_value_field", "uint32_value_field", "bool_value_field", "string_value_field", "bytes_value_field", "null_value_field", "double_field", "float_field", "int32_field", "int64_field", "uint32_field", "uint64_field", "sint32_field", "sint64_field", "fixed32_field", "fixed64_field", "sfixed32_field", "sfixed64_field", "bool_field", "string_field", "bytes_field", "colour_field", "inner_field")
    ANY_FIELD_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIELD_MASK_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRUCT_FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    LIST_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    FLOAT_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT64_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT64_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT32_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT32_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    BYTES_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    NULL_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_FIELD_FIELD_NUMBER: _ClassVar[int]
    FLOAT_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    SINT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    SINT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIXED32_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIXED64_FIELD_FIELD_NUMBER: _ClassVar[int]
    SFIXED32_FIELD_FIELD_NUMBER: _ClassVar[int]
    SFIXED64_FIELD_FIELD_NUMBER: _ClassVar[int]
    BOOL_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRING_FIELD_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_FIELD_NUMBER: _ClassVar[int]
    any_field: _any_pb2.Any
    duration_field: _duration_pb2.Duration
    empty_field: _empty_pb2.Empty
    field_mask_field: _field_mask_pb2.FieldMask
    struct_field: _struct_pb2.Struct
    value_field: _struct_pb2.Value
    list_value_field: _struct_pb2.ListValue
    timestamp_field: _timestamp_pb2.Timestamp
    double_value_field: _wrappers_pb2.DoubleValue
    float_value_field: _wrappers_pb2.FloatValue
    int64_value_field: _wrappers_pb2.Int64Value
    uint64_value_field: _wrappers_pb2.UInt64Value
    int32_value_field: _wrappers_pb2.Int32Value
    uint32_value_field: _wrappers_pb2.UInt32Value
    bool_value_field: _wrappers_pb2.BoolValue
    string_value_field: _wrappers_pb2.StringValue
    bytes_value_field: _wrappers_pb2.BytesValue
    null_value_field: _struct_pb2.NullValue
    double_field: float
    float_field: float
    int32_field: int
    int64_field: int
    uint32_field: int
    uint64_field: int
    sint32_field: int
    sint64_field: int
    fixed32_field: int
    fixed64_field: int
    sfixed32_field: int
    sfixed64_field: int
    bool_field: bool
    string_field: str
    bytes_field: bytes
    colour_field: Colour
    inner_field: Holder
    def __init__(self, any_field: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., duration_field: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., empty_field: _Optional[_Union[_empty_pb2.Empty, _Mapping]] = ..., field_mask_field: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., struct_field: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., value_field: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., list_value_field: _Optional[_Union[_struct_pb2.ListValue, _Mapping]] = ..., timestamp_field: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., double_value_field: _Optional[_Union[_wrappers_pb2.DoubleValue, _Mapping]] = ..., float_value_field: _Optional[_Union[_wrappers_pb2.FloatValue, _Mapping]] = ..., int64_value_field: _Optional[_Union[_wrappers_pb2.Int64Value, _Mapping]] = ..., uint64_value_field: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ..., int32_value_field: _Optional[_Union[_wrappers_pb2.Int32Value, _Mapping]] = ..., uint32_value_field: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., bool_value_field: _Optional[_Union[_wrappers_pb2.BoolValue, _Mapping]] = ..., string_value_field: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., bytes_value_field: _Optional[_Union[_wrappers_pb2.BytesValue, _Mapping]] = ..., null_value_field: _Optional[_Union[_struct_pb2.NullValue, str]] = ..., double_field: _Optional[float] = ..., float_field: _Optional[float] = ..., int32_field: _Optional[int] = ..., int64_field: _Optional[int] = ..., uint32_field: _Optional[int] = ..., uint64_field: _Optional[int] = ..., sint32_field: _Optional[int] = ..., sint64_field: _Optional[int] = ..., fixed32_field: _Optional[int] = ..., fixed64_field: _Optional[int] = ..., sfixed32_field: _Optional[int] = ..., sfixed64_field: _Optional[int] = ..., bool_field: _Optional[bool] = ..., string_field: _Optional[str] = ..., bytes_field: _Optional[bytes] = ..., colour_field: _Optional[_Union[Colour, str]] = ..., inner_field: _Optional[_Union[Holder, _Mapping]] = ...) -> None: ...

class Lists(_message.Message):
    __slots__ = ("any_field", "duration_field", "empty_field", "field_mask_field", "struct_field", "value_field", "list_value_field", "timestamp_field", "double_value_field", "float_value_field", "int64_value_field", "uint64_value_field", "int32_value_field", "uint32_value_field", "bool_value_field", "string_value_field", "bytes_value_field", "null_value_field", "double_field", "float_field", "int32_field", "int64_field", "uint32_field", "uint64_field", "sint32_field", "sint64_field", "fixed32_field", "fixed64_field", "sfixed32_field", "sfixed64_field", "bool_field", "string_field", "bytes_field", "colour_field", "inner_field")
    ANY_FIELD_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIELD_MASK_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRUCT_FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    LIST_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    FLOAT_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT64_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT64_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT32_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT32_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    BYTES_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    NULL_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_FIELD_FIELD_NUMBER: _ClassVar[int]
    FLOAT_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    SINT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    SINT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIXED32_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIXED64_FIELD_FIELD_NUMBER: _ClassVar[int]
    SFIXED32_FIELD_FIELD_NUMBER: _ClassVar[int]
    SFIXED64_FIELD_FIELD_NUMBER: _ClassVar[int]
    BOOL_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRING_FIELD_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_FIELD_NUMBER: _ClassVar[int]
    any_field: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    duration_field: _containers.RepeatedCompositeFieldContainer[_duration_pb2.Duration]
    empty_field: _containers.RepeatedCompositeFieldContainer[_empty_pb2.Empty]
    field_mask_field: _containers.RepeatedCompositeFieldContainer[_field_mask_pb2.FieldMask]
    struct_field: _containers.RepeatedCompositeFieldContainer[_struct_pb2.Struct]
    value_field: _containers.RepeatedCompositeFieldContainer[_struct_pb2.Value]
    list_value_field: _containers.RepeatedCompositeFieldContainer[_struct_pb2.ListValue]
    timestamp_field: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    double_value_field: _containers.RepeatedCompositeFieldContainer[_wrappers_pb2.DoubleValue]
    float_value_field: _containers.RepeatedCompositeFieldContainer[_wrappers_pb2.FloatValue]
    int64_value_field: _containers.RepeatedCompositeFieldContainer[_wrappers_pb2.Int64Value]
    uint64_value_field: _containers.RepeatedCompositeFieldContainer[_wrappers_pb2.UInt64Value]
    int32_value_field: _containers.RepeatedCompositeFieldContainer[_wrappers_pb2.Int32Value]
    uint32_value_field: _containers.RepeatedCompositeFieldContainer[_wrappers_pb2.UInt32Value]
    bool_value_field: _containers.RepeatedCompositeFieldContainer[_wrappers_pb2.BoolValue]
    string_value_field: _containers.RepeatedCompositeFieldContainer[_wrappers_pb2.StringValue]
    bytes_value_field: _containers.RepeatedCompositeFieldContainer[_wrappers_pb2.BytesValue]
    null_value_field: _containers.RepeatedScalarFieldContainer[_struct_pb2.NullValue]
    double_field: _containers.RepeatedScalarFieldContainer[float]
    float_field: _containers.RepeatedScalarFieldContainer[float]
    int32_field: _containers.RepeatedScalarFieldContainer[int]
    int64_field: _containers.RepeatedScalarFieldContainer[int]
    uint32_field: _containers.RepeatedScalarFieldContainer[int]
    uint64_field: _containers.RepeatedScalarFieldContainer[int]
    sint32_field: _containers.RepeatedScalarFieldContainer[int]
    sint64_field: _containers.RepeatedScalarFieldContainer[int]
    fixed32_field: _containers.RepeatedScalarFieldContainer[int]
    fixed64_field: _containers.RepeatedScalarFieldContainer[int]
    sfixed32_field: _containers.RepeatedScalarFieldContainer[int]
    sfixed64_field: _containers.RepeatedScalarFieldContainer[int]
    bool_field: _containers.RepeatedScalarFieldContainer[bool]
    string_field: _containers.RepeatedScalarFieldContainer[str]
    bytes_field: _containers.RepeatedScalarFieldContainer[bytes]
    colour_field: _containers.RepeatedScalarFieldContainer[Colour]
    inner_field: _containers.RepeatedCompositeFieldContainer[Holder]
    def __init__(self, any_field: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ..., duration_field: _Optional[_Iterable[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]]] = ..., empty_field: _Optional[_Iterable[_Union[_empty_pb2.Empty, _Mapping]]] = ..., field_mask_field: _Optional[_Iterable[_Union[_field_mask_pb2.FieldMask, _Mapping]]] = ..., struct_field: _Optional[_Iterable[_Union[_struct_pb2.Struct, _Mapping]]] = ..., value_field: _Optional[_Iterable[_Union[_struct_pb2.Value, _Mapping]]] = ..., list_value_field: _Optional[_Iterable[_Union[_struct_pb2.ListValue, _Mapping]]] = ..., timestamp_field: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]] = ..., double_value_field: _Optional[_Iterable[_Union[_wrappers_pb2.DoubleValue, _Mapping]]] = ..., float_value_field: _Optional[_Iterable[_Union[_wrappers_pb2.FloatValue, _Mapping]]] = ..., int64_value_field: _Optional[_Iterable[_Union[_wrappers_pb2.Int64Value, _Mapping]]] = ..., uint64_value_field: _Optional[_Iterable[_Union[_wrappers_pb2.UInt64Value, _Mapping]]] = ..., int32_value_field: _Optional[_Iterable[_Union[_wrappers_pb2.Int32Value, _Mapping]]] = ..., uint32_value_field: _Optional[_Iterable[_Union[_wrappers_pb2.UInt32Value, _Mapping]]] = ..., bool_value_field: _Optional[_Iterable[_Union[_wrappers_pb2.BoolValue, _Mapping]]] = ..., string_value_field: _Optional[_Iterable[_Union[_wrappers_pb2.StringValue, _Mapping]]] = ..., bytes_value_field: _Optional[_Iterable[_Union[_wrappers_pb2.BytesValue, _Mapping]]] = ..., null_value_field: _Optional[_Iterable[_Union[_struct_pb2.NullValue, str]]] = ..., double_field: _Optional[_Iterable[float]] = ..., float_field: _Optional[_Iterable[float]] = ..., int32_field: _Optional[_Iterable[int]] = ..., int64_field: _Optional[_Iterable[int]] = ..., uint32_field: _Optional[_Iterable[int]] = ..., uint64_field: _Optional[_Iterable[int]] = ..., sint32_field: _Optional[_Iterable[int]] = ..., sint64_field: _Optional[_Iterable[int]] = ..., fixed32_field: _Optional[_Iterable[int]] = ..., fixed64_field: _Optional[_Iterable[int]] = ..., sfixed32_field: _Optional[_Iterable[int]] = ..., sfixed64_field: _Optional[_Iterable[int]] = ..., bool_field: _Optional[_Iterable[bool]] = ..., string_field: _Optional[_Iterable[str]] = ..., bytes_field: _Optional[_Iterable[bytes]] = ..., colour_field: _Optional[_Iterable[_Union[Colour, str]]] = ..., inner_field: _Optional[_Iterable[_Union[Holder, _Mapping]]] = ...) -> None: ...

class Maps(_message.Message):
    __slots__ = ("any_field", "duration_field", "empty_field", "field_mask_field", "struct_field", "value_field", "list_value_field", "timestamp_field", "double_value_field", "float_value_field", "int64_value_field", "uint64_value_field", "int32_value_field", "uint32_value_field", "bool_value_field", "string_value_field", "bytes_value_field", "null_value_field", "double_field", "float_field", "int32_field", "int64_field", "uint32_field", "uint64_field", "sint32_field", "sint64_field", "fixed32_field", "fixed64_field", "sfixed32_field", "sfixed64_field", "bool_field", "string_field", "bytes_field", "colour_field", "inner_field")
    class AnyFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    class DurationFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _duration_pb2.Duration
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
    class EmptyFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _empty_pb2.Empty
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_empty_pb2.Empty, _Mapping]] = ...) -> None: ...
    class FieldMaskFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _field_mask_pb2.FieldMask
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...
    class StructFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Struct
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
    class ValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ...) -> None: ...
    class ListValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.ListValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.ListValue, _Mapping]] = ...) -> None: ...
    class TimestampFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _timestamp_pb2.Timestamp
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
    class DoubleValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _wrappers_pb2.DoubleValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_wrappers_pb2.DoubleValue, _Mapping]] = ...) -> None: ...
    class FloatValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _wrappers_pb2.FloatValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_wrappers_pb2.FloatValue, _Mapping]] = ...) -> None: ...
    class Int64ValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _wrappers_pb2.Int64Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_wrappers_pb2.Int64Value, _Mapping]] = ...) -> None: ...
    class Uint64ValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _wrappers_pb2.UInt64Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ...) -> None: ...
    class Int32ValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _wrappers_pb2.Int32Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_wrappers_pb2.Int32Value, _Mapping]] = ...) -> None: ...
    class Uint32ValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _wrappers_pb2.UInt32Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ...) -> None: ...
    class BoolValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _wrappers_pb2.BoolValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_wrappers_pb2.BoolValue, _Mapping]] = ...) -> None: ...
    class StringValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _wrappers_pb2.StringValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ...) -> None: ...
    class BytesValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _wrappers_pb2.BytesValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_wrappers_pb2.BytesValue, _Mapping]] = ...) -> None: ...
    class NullValueFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.NullValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.NullValue, str]] = ...) -> None: ...
    class DoubleFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class FloatFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class Int32FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class Int64FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class Uint32FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class Uint64FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class Sint32FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class Sint64FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class Fixed32FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class Fixed64FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class Sfixed32FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class Sfixed64FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class BoolFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bool
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bool] = ...) -> None: ...
    class StringFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class BytesFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class ColourFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Colour
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Colour, str]] = ...) -> None: ...
    class InnerFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Holder
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Holder, _Mapping]] = ...) -> None: ...
    ANY_FIELD_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIELD_MASK_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRUCT_FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    LIST_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    FLOAT_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT64_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT64_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT32_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT32_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    BYTES_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    NULL_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_FIELD_FIELD_NUMBER: _ClassVar[int]
    FLOAT_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    SINT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    SINT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIXED32_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIXED64_FIELD_FIELD_NUMBER: _ClassVar[int]
    SFIXED32_FIELD_FIELD_NUMBER: _ClassVar[int]
    SFIXED64_FIELD_FIELD_NUMBER: _ClassVar[int]
    BOOL_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRING_FIELD_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_FIELD_NUMBER: _ClassVar[int]
    any_field: _containers.MessageMap[str, _any_pb2.Any]
    duration_field: _containers.MessageMap[str, _duration_pb2.Duration]
    empty_field: _containers.MessageMap[str, _empty_pb2.Empty]
    field_mask_field: _containers.MessageMap[str, _field_mask_pb2.FieldMask]
    struct_field: _containers.MessageMap[str, _struct_pb2.Struct]
    value_field: _containers.MessageMap[str, _struct_pb2.Value]
    list_value_field: _containers.MessageMap[str, _struct_pb2.ListValue]
    timestamp_field: _containers.MessageMap[str, _timestamp_pb2.Timestamp]
    double_value_field: _containers.MessageMap[str, _wrappers_pb2.DoubleValue]
    float_value_field: _containers.MessageMap[str, _wrappers_pb2.FloatValue]
    int64_value_field: _containers.MessageMap[str, _wrappers_pb2.Int64Value]
    uint64_value_field: _containers.MessageMap[str, _wrappers_pb2.UInt64Value]
    int32_value_field: _containers.MessageMap[str, _wrappers_pb2.Int32Value]
    uint32_value_field: _containers.MessageMap[str, _wrappers_pb2.UInt32Value]
    bool_value_field: _containers.MessageMap[str, _wrappers_pb2.BoolValue]
    string_value_field: _containers.MessageMap[str, _wrappers_pb2.StringValue]
    bytes_value_field: _containers.MessageMap[str, _wrappers_pb2.BytesValue]
    null_value_field: _containers.ScalarMap[str, _struct_pb2.NullValue]
    double_field: _containers.ScalarMap[str, float]
    float_field: _containers.ScalarMap[str, float]
    int32_field: _containers.ScalarMap[str, int]
    int64_field: _containers.ScalarMap[str, int]
    uint32_field: _containers.ScalarMap[str, int]
    uint64_field: _containers.ScalarMap[str, int]
    sint32_field: _containers.ScalarMap[str, int]
    sint64_field: _containers.ScalarMap[str, int]
    fixed32_field: _containers.ScalarMap[str, int]
    fixed64_field: _containers.ScalarMap[str, int]
    sfixed32_field: _containers.ScalarMap[str, int]
    sfixed64_field: _containers.ScalarMap[str, int]
    bool_field: _containers.ScalarMap[str, bool]
    string_field: _containers.ScalarMap[str, str]
    bytes_field: _containers.ScalarMap[str, bytes]
    colour_field: _containers.ScalarMap[str, Colour]
    inner_field: _containers.MessageMap[str, Holder]
    def __init__(self, any_field: _Optional[_Mapping[str, _any_pb2.Any]] = ..., duration_field: _Optional[_Mapping[str, _duration_pb2.Duration]] = ..., empty_field: _Optional[_Mapping[str, _empty_pb2.Empty]] = ..., field_mask_field: _Optional[_Mapping[str, _field_mask_pb2.FieldMask]] = ..., struct_field: _Optional[_Mapping[str, _struct_pb2.Struct]] = ..., value_field: _Optional[_Mapping[str, _struct_pb2.Value]] = ..., list_value_field: _Optional[_Mapping[str, _struct_pb2.ListValue]] = ..., timestamp_field: _Optional[_Mapping[str, _timestamp_pb2.Timestamp]] = ..., double_value_field: _Optional[_Mapping[str, _wrappers_pb2.DoubleValue]] = ..., float_value_field: _Optional[_Mapping[str, _wrappers_pb2.FloatValue]] = ..., int64_value_field: _Optional[_Mapping[str, _wrappers_pb2.Int64Value]] = ..., uint64_value_field: _Optional[_Mapping[str, _wrappers_pb2.UInt64Value]] = ..., int32_value_field: _Optional[_Mapping[str, _wrappers_pb2.Int32Value]] = ..., uint32_value_field: _Optional[_Mapping[str, _wrappers_pb2.UInt32Value]] = ..., bool_value_field: _Optional[_Mapping[str, _wrappers_pb2.BoolValue]] = ..., string_value_field: _Optional[_Mapping[str, _wrappers_pb2.StringValue]] = ..., bytes_value_field: _Optional[_Mapping[str, _wrappers_pb2.BytesValue]] = ..., null_value_field: _Optional[_Mapping[str, _struct_pb2.NullValue]] = ..., double_field: _Optional[_Mapping[str, float]] = ..., float_field: _Optional[_Mapping[str, float]] = ..., int32_field: _Optional[_Mapping[str, int]] = ..., int64_field: _Optional[_Mapping[str, int]] = ..., uint32_field: _Optional[_Mapping[str, int]] = ..., uint64_field: _Optional[_Mapping[str, int]] = ..., sint32_field: _Optional[_Mapping[str, int]] = ..., sint64_field: _Optional[_Mapping[str, int]] = ..., fixed32_field: _Optional[_Mapping[str, int]] = ..., fixed64_field: _Optional[_Mapping[str, int]] = ..., sfixed32_field: _Optional[_Mapping[str, int]] = ..., sfixed64_field: _Optional[_Mapping[str, int]] = ..., bool_field: _Optional[_Mapping[str, bool]] = ..., string_field: _Optional[_Mapping[str, str]] = ..., bytes_field: _Optional[_Mapping[str, bytes]] = ..., colour_field: _Optional[_Mapping[str, Colour]] = ..., inner_field: _Optional[_Mapping[str, Holder]] = ...) -> None: ...

class Choice(_message.Message):
    __slots__ = ("any_field", "duration_field", "empty_field", "field_mask_field", "struct_field", "value_field", "list_value_field", "timestamp_field", "double_value_field", "float_value_field", "int64_value_field", "uint64_value_field", "int32_value_field", "uint32_value_field", "bool_value_field", "string_value_field", "bytes_value_field", "null_value_field", "double_field", "float_field", "int32_field", "int64_field", "uint32_field", "uint64_field", "sint32_field", "sint64_field", "fixed32_field", "fixed64_field", "sfixed32_field", "sfixed64_field", "bool_field", "string_field", "bytes_field", "colour_field", "inner_field")
    ANY_FIELD_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIELD_MASK_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRUCT_FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    LIST_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    FLOAT_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT64_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT64_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT32_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT32_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    BYTES_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    NULL_VALUE_FIELD_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_FIELD_FIELD_NUMBER: _ClassVar[int]
    FLOAT_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    SINT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    SINT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIXED32_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIXED64_FIELD_FIELD_NUMBER: _ClassVar[int]
    SFIXED32_FIELD_FIELD_NUMBER: _ClassVar[int]
    SFIXED64_FIELD_FIELD_NUMBER: _ClassVar[int]
    BOOL_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRING_FIELD_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_FIELD_NUMBER: _ClassVar[int]
    any_field: _any_pb2.Any
    duration_field: _duration_pb2.Duration
    empty_field: _empty_pb2.Empty
    field_mask_field: _field_mask_pb2.FieldMask
    struct_field: _struct_pb2.Struct
    value_field: _struct_pb2.Value
    list_value_field: _struct_pb2.ListValue
    timestamp_field: _timestamp_pb2.Timestamp
    double_value_field: _wrappers_pb2.DoubleValue
    float_value_field: _wrappers_pb2.FloatValue
    int64_value_field: _wrappers_pb2.Int64Value
    uint64_value_field: _wrappers_pb2.UInt64Value
    int32_value_field: _wrappers_pb2.Int32Value
    uint32_value_field: _wrappers_pb2.UInt32Value
    bool_value_field: _wrappers_pb2.BoolValue
    string_value_field: _wrappers_pb2.StringValue
    bytes_value_field: _wrappers_pb2.BytesValue
    null_value_field: _struct_pb2.NullValue
    double_field: float
    float_field: float
    int32_field: int
    int64_field: int
    uint32_field: int
    uint64_field: int
    sint32_field: int
    sint64_field: int
    fixed32_field: int
    fixed64_field: int
    sfixed32_field: int
    sfixed64_field: int
    bool_field: bool
    string_field: str
    bytes_field: bytes
    colour_field: Colour
    inner_field: Holder
    def __init__(self, any_field: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., duration_field: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., empty_field: _Optional[_Union[_empty_pb2.Empty, _Mapping]] = ..., field_mask_field: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., struct_field: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., value_field: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., list_value_field: _Optional[_Union[_struct_pb2.ListValue, _Mapping]] = ..., timestamp_field: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., double_value_field: _Optional[_Union[_wrappers_pb2.DoubleValue, _Mapping]] = ..., float_value_field: _Optional[_Union[_wrappers_pb2.FloatValue, _Mapping]] = ..., int64_value_field: _Optional[_Union[_wrappers_pb2.Int64Value, _Mapping]] = ..., uint64_value_field: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ..., int32_value_field: _Optional[_Union[_wrappers_pb2.Int32Value, _Mapping]] = ..., uint32_value_field: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., bool_value_field: _Optional[_Union[_wrappers_pb2.BoolValue, _Mapping]] = ..., string_value_field: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., bytes_value_field: _Optional[_Union[_wrappers_pb2.BytesValue, _Mapping]] = ..., null_value_field: _Optional[_Union[_struct_pb2.NullValue, str]] = ..., double_field: _Optional[float] = ..., float_field: _Optional[float] = ..., int32_field: _Optional[int] = ..., int64_field: _Optional[int] = ..., uint32_field: _Optional[int] = ..., uint64_field: _Optional[int] = ..., sint32_field: _Optional[int] = ..., sint64_field: _Optional[int] = ..., fixed32_field: _Optional[int] = ..., fixed64_field: _Optional[int] = ..., sfixed32_field: _Optional[int] = ..., sfixed64_field: _Optional[int] = ..., bool_field: _Optional[bool] = ..., string_field: _Optional[str] = ..., bytes_field: _Optional[bytes] = ..., colour_field: _Optional[_Union[Colour, str]] = ..., inner_field: _Optional[_Union[Holder, _Mapping]] = ...) -> None: ...

class Keys(_message.Message):
    __slots__ = ("int32_field", "int64_field", "uint32_field", "uint64_field", "sint32_field", "sint64_field", "fixed32_field", "fixed64_field", "sfixed32_field", "sfixed64_field", "bool_field", "string_field")
    class Int32FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class Int64FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class Uint32FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class Uint64FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class Sint32FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class Sint64FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class Fixed32FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class Fixed64FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class Sfixed32FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class Sfixed64FieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class BoolFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: bool
        value: int
        def __init__(self, key: _Optional[bool] = ..., value: _Optional[int] = ...) -> None: ...
    class StringFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    INT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    INT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    UINT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    SINT32_FIELD_FIELD_NUMBER: _ClassVar[int]
    SINT64_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIXED32_FIELD_FIELD_NUMBER: _ClassVar[int]
    FIXED64_FIELD_FIELD_NUMBER: _ClassVar[int]
    SFIXED32_FIELD_FIELD_NUMBER: _ClassVar[int]
    SFIXED64_FIELD_FIELD_NUMBER: _ClassVar[int]
    BOOL_FIELD_FIELD_NUMBER: _ClassVar[int]
    STRING_FIELD_FIELD_NUMBER: _ClassVar[int]
    int32_field: _containers.ScalarMap[int, int]
    int64_field: _containers.ScalarMap[int, int]
    uint32_field: _containers.ScalarMap[int, int]
    uint64_field: _containers.ScalarMap[int, int]
    sint32_field: _containers.ScalarMap[int, int]
    sint64_field: _containers.ScalarMap[int, int]
    fixed32_field: _containers.ScalarMap[int, int]
    fixed64_field: _containers.ScalarMap[int, int]
    sfixed32_field: _containers.ScalarMap[int, int]
    sfixed64_field: _containers.ScalarMap[int, int]
    bool_field: _containers.ScalarMap[bool, int]
    string_field: _containers.ScalarMap[str, int]
    def __init__(self, int32_field: _Optional[_Mapping[int, int]] = ..., int64_field: _Optional[_Mapping[int, int]] = ..., uint32_field: _Optional[_Mapping[int, int]] = ..., uint64_field: _Optional[_Mapping[int, int]] = ..., sint32_field: _Optional[_Mapping[int, int]] = ..., sint64_field: _Optional[_Mapping[int, int]] = ..., fixed32_field: _Optional[_Mapping[int, int]] = ..., fixed64_field: _Optional[_Mapping[int, int]] = ..., sfixed32_field: _Optional[_Mapping[int, int]] = ..., sfixed64_field: _Optional[_Mapping[int, int]] = ..., bool_field: _Optional[_Mapping[bool, int]] = ..., string_field: _Optional[_Mapping[str, int]] = ...) -> None: ...
