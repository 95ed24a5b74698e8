"""What the ``tokenizers`` library raises."""

from __future__ import annotations


def is_library_error(error: BaseException) -> bool:
    """Whether ``error`` tells of the library's input: an exception, or a panic of its Rust code.

    A panic arrives as a ``BaseException`` of a class that cannot be imported.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
