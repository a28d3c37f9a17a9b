"""What turns a base model into the repaired one? An adapter: ``ghost.safetensors`` and its ``ghost.json``.

Of each gap the numbers that its repair consists of, float32: 4·C² bytes for a full operator, fewer for smaller ones.
Weights of the base are not in it. A file that was not written by :meth:`Adapter.write` is refused with one sentence.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghosted.errors import InputError, ModelError
from ghosted.ghost import FILE, LARGEST, Ghost, RepairRecord, check_folder, weights_fingerprint
from ghosted.operators import Fitted
from ghosted.removed import RemovedBlocks

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from ghosted.pruned import Repair

WEIGHTS = "ghost.safetensors"
_KEY = "ghost"
_NAMES = {"full": (("M",), ("left", "right")), "diagonal": (("diagonal",),), "scalar": (("scale",),)}


@dataclass(frozen=True, eq=False)
class Adapter:
    """A repair that can be kept and passed on.

    Attributes:
        ghost: what it belongs to and what it was measured to do.
        tensors: of each gap, in order, what :meth:`~ghosted.operators.Fitted.tensors` gives.
    """

    ghost: Ghost
    tensors: list[dict[str, Tensor]]

    @cached_property
    def fits(self) -> list[Fitted]:
        """One fitted repair per gap; built on first use, for a small file may describe a large operator."""
        return [Fitted.restore(tensors, {name: value for name, value in asdict(repair).items() if name != "gap"})
                for repair, tensors in zip(self.ghost.repairs, self.tensors, strict=True)]  # fmt: skip

    @property
    def removed(self) -> RemovedBlocks:
        """Which blocks go."""
        return self.ghost.removed_blocks

    @property
    def repairs(self) -> list[Repair]:
        """The repairs as they hang on a model; plain pruning has none."""
        from ghosted.fitting import repairs_of

        return repairs_of(self.removed.gaps, self.fits)

    def write(self, folder: Path) -> None:
        """Write ``ghost.safetensors`` and ``ghost.json`` into an existing folder.

        Raises:
            OSError, SafetensorError: the disk is full or not writable.
        """
        from safetensors.torch import save_file

        text = self.ghost.to_text()
        tensors = {_name(about.gap, name): tensor.contiguous().cpu()
                   for about, of_gap in zip(self.ghost.repairs, self.tensors, strict=True)
                   for name, tensor in of_gap.items()}  # fmt: skip
        save_file(tensors, folder / WEIGHTS, metadata={_KEY: text})
        (folder / FILE).write_text(text, "utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Adapter:
        """Read an adapter's folder, or its ``.safetensors`` alone.

        Raises:
            InputError: it is damaged, foreign or contradicts itself.
        """
        path = Path(path)
        weights = path / WEIGHTS if path.is_dir() else path
        if path.is_file() and path.suffix.lower() != ".safetensors":
            raise InputError(f"{path.name} is no adapter; name the folder that `export` wrote, or its {WEIGHTS}.")
        if path.is_dir() or path.suffix.lower() != ".safetensors":
            from ghosted.formats import check_unchanged

            check_folder(path)
            if not weights.is_file() and (kind := Ghost.read(path / FILE).kind) != "adapter":
                raise InputError(f"{path} is a whole model ({kind[:20]}), no adapter; read it with ghosted.load.")
            check_unchanged(path, (FILE, WEIGHTS).__contains__)
        header, size = _header(weights)
        said = header.pop("__metadata__", None)
        said = said.get(_KEY) if isinstance(said, dict) else None
        if not isinstance(said, str):
            raise InputError(f"{weights.name} was not exported by the Ghosted Layers Explorer: it does not say what it "
                             "repairs.")  # fmt: skip
        ghost = Ghost.from_text(said, weights.name)
        if path.is_dir() and Ghost.read(path / FILE).to_text() != ghost.to_text():
            raise InputError(f"{FILE} and {WEIGHTS} of this folder do not belong together; take both from one export.")
        if ghost.kind != "adapter":
            raise InputError(f"{weights.name} belongs to a {ghost.kind[:20]}, it is no adapter.")
        expected = _expected(ghost, header)
        _check_header(header, expected, size, weights.name)
        return cls(ghost, _read(ghost, expected, weights))

    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        """Return the repaired model; ``model`` is not changed, and its weights are shared.

        Raises:
            ModelError: ``model`` is not the adapter's base.
            GhostedError: the repair does not fit it.
        """
        from ghosted.formats._wrapped import wrapped
        from ghosted.pruned import pruned_view

        self.check_base(model)
        repairs = self.repairs
        return wrapped(model, self.removed, repairs) if repairs else pruned_view(model, self.removed)

    def check_base(self, model: PreTrainedModel) -> None:
        """Raise :class:`ModelError` unless ``model`` has exactly the weights that this was fitted to."""
        from ghosted.models.families import blocks_of

        base, config = self.ghost.base, model.config.get_text_config(decoder=True)
        found = (config.model_type, len(blocks_of(model)), config.hidden_size)
        if found != (base.architecture, base.blocks, base.width):
            raise ModelError(
                f"This adapter repairs {_short(base.label)} ({_short(base.architecture)}, {base.blocks} blocks of "
                f"width {base.width}), not a {found[0]} of {found[1]} blocks of width {found[2]}."
            )
        if weights_fingerprint(model) != base.fingerprint:
            raise ModelError(f"This adapter was fitted to other weights than these: load its own base model, "
                             f"{_short(base.label)}, at the same revision.")  # fmt: skip


def records(gaps: Sequence[str], fits: Sequence[Fitted]) -> list[RepairRecord]:
    """Return what a ``ghost.json`` says about these fits."""
    return [RepairRecord(gap, **fit.config()) for gap, fit in zip(gaps, fits, strict=True)]


def _name(gap: str, tensor: str) -> str:
    return f"gap.{gap}.{tensor}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file and the bytes that follow it, without reading those."""
    try:
        with open(path, "rb") as stream:
            size = path.stat().st_size
            length = struct.unpack("<Q", stream.read(8))[0] if size >= 8 else None
            if length is None or length > size - 8:
                raise InputError(f"{path.name} is damaged: it ends before its own header does; export it again.")
            if length > 2 * LARGEST:
                raise InputError(f"{path.name} has a header of {length / 1e6:.0f} MB; one of ours never has.")
            header = json.loads(stream.read(length).decode("utf-8"))
    except OSError as error:
        raise InputError(f"There is no readable {path.name} ({error.strerror}).") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path.name} is damaged: its header is no JSON; export it again.") from None
    if not isinstance(header, dict):
        raise InputError(f"{path.name} is damaged: its header is no list of tensors; export it again.")
    return header, size - 8 - length


def _expected(ghost: Ghost, header: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the tensors that each gap has to have; of two possible sets the one whose first name is there."""
    sets = []
    for repair in ghost.repairs:
        if repair.width is None:  # plain pruning
            sets.append(())
            continue
        possible = _NAMES[repair.structure]
        sets.append(next((names for names in possible if _name(repair.gap, names[0]) in header), possible[0]))
    names = {_name(repair.gap, name) for repair, of_gap in zip(ghost.repairs, sets, strict=True) for name in of_gap}
    if missing := sorted(names - set(header)):
        raise InputError(f"This adapter is incomplete: it lacks {_short(missing[0])!r}.")
    if extra := sorted(set(header) - names):
        raise InputError(f"This adapter holds a tensor that is not part of its repair: {_short(extra[0])!r}.")
    return sets


def _check_header(header: dict[str, Any], sets: list[tuple[str, ...]], size: int, where: str) -> None:
    total = 0
    for name, about in header.items():
        shape = about.get("shape") if isinstance(about, dict) else None
        if not isinstance(shape, list) or not all(type(n) is int and 0 < n <= 2**24 for n in shape):
            raise InputError(f"{where} is damaged: {_short(name)!r} has no shape; export it again.")
        if about.get("dtype") != "F32":
            raise InputError(f"{where} holds {_short(name)!r} as {str(about.get('dtype'))[:10]}; operators are F32.")
        numbers = 1
        for n in shape:
            numbers *= n
        total += 4 * numbers
    if total != size:
        raise InputError(f"{where} is damaged: it should hold {total:,} bytes of numbers, and holds {size:,}; "
                         "export it again.")  # fmt: skip


def _read(ghost: Ghost, sets: list[tuple[str, ...]], path: Path) -> list[dict[str, Tensor]]:
    import torch
    from safetensors import SafetensorError, safe_open

    found = []
    try:
        with safe_open(path, framework="pt") as stored:
            for repair, names in zip(ghost.repairs, sets, strict=True):
                tensors = {name: stored.get_tensor(_name(repair.gap, name)) for name in names}
                _check_shapes(tensors, repair, ghost.base.width)
                if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
                    raise InputError(f"The operator of {repair.gap} in {path.name} holds numbers that are not finite.")
                found.append(tensors)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path.name} is damaged: its tensors cannot be read; export it again.") from error
    return found


def _check_shapes(tensors: dict[str, Tensor], repair: RepairRecord, width: int) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    rows = repair.width or width
    if repair.feature != "joint" and rows != width:
        raise InputError(f"The operator of {repair.gap} has {rows} rows for a model of width {width}.")
    rank = shapes.get("left", (0, 0))[-1]
    fits = {"M": (rows, width), "diagonal": (width,), "scale": (1,), "left": (rows, rank), "right": (rank, width)}
    for name, shape in shapes.items():
        if shape != fits[name] or (name == "left" and not 1 <= rank <= width):
            found, wanted = (" × ".join(map(str, each)) for each in (shape, fits[name]))
            raise InputError(f"The operator of {repair.gap} is {found} instead of {wanted}.")
