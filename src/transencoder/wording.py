"""Counts and values as messages show them."""


def shorten(value: object, limit: int = 80) -> str:
    """The value's repr on one line, cut to about `limit` characters."""
    if isinstance(value, str | bytes):
        text = repr(value[: limit + 1])
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(shorten(item, limit) for item in value[:20]) + (", ..." if len(value) > 20 else "") + "]"
    else:
        text = repr(value)
    return text if len(text) <= limit + 2 else text[:limit] + "..."


def plural(count: int, noun: str) -> str:
    """`1 field`, `3 fields`, with thousands marked."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
