"""The part of Protocol Buffers that a Chakra trace is written in.

    field = (number << 3 | kind), then a varint (kind 0), or a length and bytes (kind 2)

Source: "Encoding", the documentation of Protocol Buffers.
"""


def text(field: int, value: str) -> bytes:
    """A field that is a string."""
    return data(field, value.encode())


def data(field: int, value: bytes) -> bytes:
    """A field that is a message, packed numbers or a string, behind its length."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def number(field: int, value: int) -> bytes:
    """A field that is an integer, 0 or more, or a truth value."""
    return varint(field << 3) + varint(value)


def varint(value: int) -> bytes:
    """An integer, 0 or more: 7 bits a byte, the lowest first."""
    rest, low = divmod(value, 128)
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])
