"""When may a float32 product read its operands as bfloat16? Where they hold no more than that, or where it may round.

torch has one such switch for the whole process, so whoever sets it must be the only one who computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from ghosted import machine


@contextmanager
def bfloat16_products() -> Iterator[None]:
    """Let float32 products read their operands as bfloat16; they still sum in float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def are_faster(dtype: torch.dtype) -> bool:
    """Return whether states of this dtype lose nothing in bfloat16 products and this machine is fast in them."""
    return dtype == torch.bfloat16 and machine.fastest_dtype() == "bfloat16"


def products(dtype: torch.dtype) -> AbstractContextManager[None]:
    """Return the context for products with states of this dtype; bfloat16 only where it rounds no state."""
    return bfloat16_products() if are_faster(dtype) else nullcontext()
