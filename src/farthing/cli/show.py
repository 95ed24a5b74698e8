"""``farthing show``: what a model is and what it takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farthing.cli.options import Adapter, Json, ModelArgument

if TYPE_CHECKING:
    from farthing.config import ModelConfig
    from farthing.models.adapter import AdaptedProgram
    from farthing.models.adapter import Adapter as LoraAdapter
    from farthing.models.checkpoint import Checkpoint
    from farthing.models.checkpoint.checkpoint import AnyTensor
    from farthing.program.ops import Program


@dataclass(slots=True)
class TypeTotal:
    """All tensors stored as one type."""

    tensors: int = 0
    parameters: int = 0
    nbytes: int = 0
    storage_bits: int = 0  # what the scheme itself takes
    served_as: str = ""


def show(
    model: ModelArgument,
    program: Annotated[
        bool, typer.Option("--program", help="List the operations of a pass as well.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Read all of a packed directory and compare it with the checksums it was written "
            "with.",
        ),
    ] = False,
    adapter: Adapter = None,
    json: Json = False,
) -> None:
    """Show what a model is and what memory it takes."""
    from farthing.cli.download import fetch
    from farthing.cli.terminal import console, write_json
    from farthing.models.adapter import apply_adapter, open_adapter
    from farthing.models.checkpoint import open_checkpoint
    from farthing.models.registry import FAMILIES, build_program
    from farthing.program.listing import describe

    lora = None if adapter is None else open_adapter(Path(adapter))
    path = fetch(model)
    checkpoint = open_checkpoint(path, FAMILIES)
    operations = build_program(checkpoint.config)
    facts: dict[str, Any] = {
        "model": model,
        "path": str(path),
        **checkpoint_facts(checkpoint),
        **kv_facts(operations, checkpoint.config.context_length),
    }
    if lora is not None:
        adapted = apply_adapter(operations, lora)
        operations = adapted.program
        facts["adapter"] = adapter_facts(lora, adapted)
    if verify:
        facts["verified"] = _verify(path, checkpoint)
    listing = describe(operations) if program else None
    if json:
        write_json(facts if listing is None else {**facts, "program": listing.splitlines()})
        return
    _print(facts)
    if listing is not None:
        console().print(f"\n{listing}", soft_wrap=True)


def _verify(path: Path, checkpoint: Checkpoint) -> dict[str, int]:
    from farthing.cli.loading import LoadBar
    from farthing.errors import InvalidParameterError
    from farthing.packing import verify_packed

    if checkpoint.manifest is None:
        raise InvalidParameterError(
            f"--verify: {path} came without checksums; directories that 'farthing quantize' makes "
            "have them"
        )
    bar = LoadBar(path.name, "Verifying")
    try:
        verified = verify_packed(path, checkpoint.manifest, bar.advance)
    finally:
        bar.finish()
    return {"tensors": verified.tensors, "files": verified.files, "bytes": verified.nbytes}


def totals_by_type(checkpoint: Checkpoint) -> dict[str, TypeTotal]:
    """Tensors, parameters and bytes in the file for each stored type, the largest first."""
    totals: dict[str, TypeTotal] = {}
    counted = set()
    for tensor in checkpoint.tensors.values():
        total = totals.setdefault(tensor.stored_dtype, TypeTotal(served_as=tensor.dtype))
        total.tensors += tensor.name not in counted  # experts may be parts of one tensor
        counted.add(tensor.name)
        total.parameters += tensor.rows * tensor.cols
        total.nbytes += tensor.nbytes
        total.storage_bits += _storage_bits(tensor)
    return dict(sorted(totals.items(), key=lambda item: -item[1].nbytes))


def _storage_bits(tensor: AnyTensor) -> int:
    """Bits of codes, scales and a learnt codebook; what carries them may take more."""
    from farthing.models.checkpoint import PackedTensor
    from farthing.quantization import scheme

    if not isinstance(tensor, PackedTensor):
        return 8 * tensor.nbytes
    return 8 * scheme(tensor.stored_dtype).matrix_bytes(*tensor.shape)


def checkpoint_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What ``show --json`` prints; sizes in bytes, lengths in tokens."""
    config = checkpoint.config
    types = totals_by_type(checkpoint)
    parameters = sum(total.parameters for total in types.values())
    nbytes = sum(total.nbytes for total in types.values())
    return {
        "format": checkpoint.format,
        "architecture": config.architecture,
        "layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "experts": None if config.experts is None else asdict(config.experts),
        "heads": config.num_heads,
        "kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "context_length": config.context_length,
        "tied_embeddings": config.tie_word_embeddings,
        "chat_template": checkpoint.chat_template is not None,
        "parameters": parameters,
        "active_parameters": parameters - _idle_parameters(config),
        "tensor_bytes": nbytes,
        "bits_per_weight": 8 * nbytes / parameters,
        "packed": packed_facts(checkpoint),
        "tensor_types": {
            name: {
                "tensors": total.tensors,
                "parameters": total.parameters,
                "bytes": total.nbytes,
                "bits_per_weight": 8 * total.nbytes / total.parameters,
                "storage_bits_per_weight": total.storage_bits / total.parameters,
                "served_as": total.served_as,
            }
            for name, total in types.items()
        },
    }


def packed_facts(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """How a packed directory was made; None for other models."""
    manifest = checkpoint.manifest
    if manifest is None:
        return None
    return {
        "source": manifest.source,
        "source_bytes": manifest.source_bytes,
        "method": manifest.method,
        "calibration": None if manifest.calibration is None else asdict(manifest.calibration),
        "created_by": manifest.created_by,
        "numerics_version": manifest.numerics_version,
        "fingerprint": manifest.fingerprint,
    }


def _idle_parameters(config: ModelConfig) -> int:
    """Parameters of the experts that a token does not visit."""
    experts = config.experts
    if experts is None:
        return 0
    layers = config.num_layers - len(experts.dense_layers)
    each = 3 * experts.intermediate_size * config.hidden_size
    return layers * (experts.count - experts.per_token) * each


def adapter_facts(adapter: LoraAdapter, adapted: AdaptedProgram) -> dict[str, Any]:
    """What ``show --json`` prints of an adapter; sizes in bytes."""
    from farthing.engine.model_loader import packed_bytes

    return {
        "path": str(adapter.path),
        "base_model": adapter.config.base_model,
        "ranks": list(adapter.ranks),
        "targets": list(adapter.targets),
        "modules": len(adapter.pairs),
        "parameters": adapter.parameters,
        "tensor_bytes": adapter.nbytes,
        "served_bytes": sum(map(packed_bytes, adapted.sources.values())),
    }


def kv_facts(program: Program, context_length: int) -> dict[str, dict[str, int]]:
    """Bytes of keys and values: of one token, and of the blocks that a full context needs."""
    from farthing.engine.block_pool import BLOCK_TOKENS, blocks_for
    from farthing.engine.model_loader import kv_bytes_per_token
    from farthing.program.kv_types import KV_DTYPES

    per_token: dict[str, int] = {dtype: kv_bytes_per_token(program, dtype) for dtype in KV_DTYPES}
    tokens = blocks_for(context_length) * BLOCK_TOKENS
    return {
        "kv_bytes_per_token": per_token,
        "kv_bytes_full_context": {dtype: each * tokens for dtype, each in per_token.items()},
    }


def _experts_text(experts: dict[str, Any]) -> str:
    text = (
        f"{experts['per_token']} of {experts['count']} for a token, feed-forward "
        f"{experts['intermediate_size']:,} each"
    )
    dense = len(experts["dense_layers"])
    return f"{text}; {dense} layer{'s' * (dense > 1)} without" if dense else text


def _packed_text(packed: dict[str, Any]) -> str:
    how = "codes kept" if packed["method"] == "none" else f"scales by {packed['method']}"
    calibration = packed["calibration"]
    if calibration is not None:
        how += f", bits of each matrix by its harm on {calibration['name']}"
    text = f"from {packed['source']}, {how}, by {packed['created_by']}; numerics "
    text += f"{packed['numerics_version']}, fingerprint {packed['fingerprint']}"
    return text if text.isprintable() else repr(text)


def _verified_text(verified: dict[str, int]) -> str:
    from farthing.cli.terminal import human_bytes

    files = verified["files"]
    return (
        f"{verified['tensors']:,} tensors and {files} other file{'s' * (files != 1)}, "
        f"{human_bytes(verified['bytes'])}, are as they were written"
    )


def _print(facts: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    from farthing.cli.terminal import console, human_bytes, human_count, print_facts

    parameters = f"{human_count(facts['parameters'])} ({facts['parameters']:,} in the file)"
    if facts["tied_embeddings"]:
        parameters += ", output tied to the embedding"
    experts = facts["experts"]
    if experts is not None:
        parameters += f", {human_count(facts['active_parameters'])} of them for a token"
    print_facts(
        {
            "Model": facts["model"],
            "File": facts["path"],
            "Format": facts["format"],
            "Architecture": facts["architecture"],
            "Parameters": parameters,
            "Layers": str(facts["layers"]),
            "Width": f"{facts['hidden_size']:,}, feed-forward {facts['intermediate_size']:,}",
            **({} if experts is None else {"Experts": _experts_text(experts)}),
            "Heads": f"{facts['heads']} of {facts['head_dim']}, {facts['kv_heads']} for keys and "
            "values",
            "Vocabulary": f"{facts['vocab_size']:,} tokens",
            "Context": f"{facts['context_length']:,} tokens",
            "Chat template": "yes" if facts["chat_template"] else "no",
            "Weights": f"{human_bytes(facts['tensor_bytes'])}, "
            f"{facts['bits_per_weight']:.2f} bits a weight",
            **({} if facts["packed"] is None else {"Packed": _packed_text(facts["packed"])}),
            **({"Verified": _verified_text(facts["verified"])} if "verified" in facts else {}),
        }
    )
    types = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    types.add_column("Tensor type")
    for heading in ("Tensors", "Parameters", "Bytes", "", "Bits a weight", "Of the scheme"):
        types.add_column(heading, justify="right")
    types.add_column("Served as")
    for name, total in facts["tensor_types"].items():
        types.add_row(
            name,
            f"{total['tensors']:,}",
            f"{total['parameters']:,}",
            f"{total['bytes']:,}",
            human_bytes(total["bytes"]),
            f"{total['bits_per_weight']:.2f}",
            f"{total['storage_bits_per_weight']:.4g}",
            total["served_as"],
        )
    cache = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    cache.add_column("KV cache")
    for heading in ("Bytes a token", "Full context", ""):
        cache.add_column(heading, justify="right")
    for dtype, per_token in facts["kv_bytes_per_token"].items():
        full = facts["kv_bytes_full_context"][dtype]
        cache.add_row(dtype, f"{per_token:,}", f"{full:,}", human_bytes(full))
    out = console()
    if "adapter" in facts:
        _print_adapter(facts["adapter"])
    out.print()
    out.print(types)
    out.print()
    out.print(cache)


def _print_adapter(facts: dict[str, Any]) -> None:
    from farthing.cli.terminal import human_bytes, human_count, print_facts

    base = facts["base_model"] or "not said"
    print_facts(
        {
            "Adapter": facts["path"],
            "Made for": base if base.isprintable() else repr(base),
            "Rank": ", ".join(map(str, facts["ranks"])),
            "Adapts": f"{', '.join(facts['targets'])}: {facts['modules']} matrices",
            "Its size": f"{human_count(facts['parameters'])} parameters, "
            f"{human_bytes(facts['tensor_bytes'])} in the file, "
            f"{human_bytes(facts['served_bytes'])} in memory",
        }
    )
