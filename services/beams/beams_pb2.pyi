from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SearchRequest(_message.Message):
    __slots__ = ("prompt", "max_tokens", "beams", "until")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BEAMS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    prompt: str
    max_tokens: int
    beams: int
    until: str
    def __init__(self, prompt: _Optional[str] = ..., max_tokens: _Optional[int] = ..., beams: _Optional[int] = ..., until: _Optional[str] = ...) -> None: ...

class Found(_message.Message):
    __slots__ = ("text", "log_probability", "compared")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    text: str
    log_probability: float
    compared: int
    def __init__(self, text: _Optional[str] = ..., log_probability: _Optional[float] = ..., compared: _Optional[int] = ...) -> None: ...
