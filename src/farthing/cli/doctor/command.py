"""The verb: facts first, then a table of proofs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from farthing.cli.options import Json

if TYPE_CHECKING:
    from farthing.cli.doctor.kernel_proof import Proof


def doctor(json: Json = False) -> None:
    """Describe this machine and prove its kernels right.

    Every kernel is compared, bit for bit, with the scalar one on random and awkward inputs. Exit
    status 1 if one differs.
    """
    from farthing.cli.doctor import machine_report
    from farthing.cli.doctor.kernel_proof import prove_kernels
    from farthing.cli.terminal import write_json

    facts = {
        "software": machine_report.software_facts(),
        **machine_report.machine_facts(),
        "instruction_sets": machine_report.isa_facts(),
        "read_bandwidth": machine_report.bandwidth_facts(),
        "cache": machine_report.cache_facts(),
    }
    if not json:
        _print_facts(facts)
    proofs = prove_kernels()
    if json:
        write_json({**facts, "kernels": [proof.as_json() for proof in proofs]})
    else:
        _print_proofs(proofs)
    if not all(proof.equal for proof in proofs):
        raise typer.Exit(1)


def _print_facts(facts: dict[str, Any]) -> None:
    from farthing.cli.doctor.machine_report import describe_amx, describe_cpus
    from farthing.cli.terminal import human_bytes, print_facts

    cpu, cgroup, software = facts["cpu"], facts["cgroup"], facts["software"]
    isas, rate, pages = facts["instruction_sets"], facts["read_bandwidth"], facts["huge_pages"]
    cpus = cpu["allowed_cpus"]
    packages = ", ".join(
        f"{name} {version or 'missing'}" for name, version in software["packages"].items()
    )
    versions = " and ".join(f"v{version}" for version in cgroup["versions"]) or "none"
    quota = "no CPU limit" if cgroup["cpus"] is None else f"{cgroup['cpus']:g} CPUs"
    limit = (
        "no memory limit"
        if cgroup["memory_limit"] is None
        else f"{human_bytes(cgroup['memory_limit'])} of memory, "
        f"{human_bytes(cgroup['memory_headroom'])} left"
    )
    memory, cache = facts["memory"], facts["cache"]
    spread = f"{rate['lowest']:.1f} to {rate['highest']:.1f} in {rate['repeats']} runs"
    print_facts(
        {
            "Farthing": f"{software['farthing']}, Python {software['python']}, "
            f"{software['system']}",
            "Packages": packages,
            "CPU": cpu["model"],
            "Instruction sets": ", ".join(
                f"{isa} (in use)" if isa == isas["active"] else isa for isa in isas["supported"]
            ),
            "AMX": describe_amx(isas["amx"]),
            "Allowed CPUs": f"{describe_cpus(cpus)}: {len(cpus)} CPUs on "
            f"{cpu['allowed_cores']} cores",
            "Control group": f"{versions}: {quota}, {limit}",
            "Threads": str(facts["threads"]),
            "Last-level cache": human_bytes(cpu["last_level_cache_bytes"]),
            "NUMA nodes": str(cpu["numa_nodes"]),
            "Memory": f"{human_bytes(memory['total'])}, "
            f"{human_bytes(memory['available'])} available to this process",
            "Huge pages": f"transparent: {pages['transparent'] or 'unknown'}; reserved: "
            f"{pages['total']} of {human_bytes(pages['page_bytes'])}, {pages['free']} free",
            "Read bandwidth": f"{rate['median']:.1f} GB/s ({spread}, {rate['threads']} threads)",
            "Cache folder": f"{cache['folder']}: {cache['models']} "
            f"model{'s' * (cache['models'] != 1)}, {human_bytes(cache['bytes'])}",
        }
    )


def _print_proofs(proofs: list[Proof]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from farthing.cli.terminal import console

    isas = list(dict.fromkeys(proof.isa for proof in proofs))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("Kernel")
    table.add_column("Inputs", justify="right")
    for isa in isas:
        table.add_column(isa)
    rows: dict[str, dict[str, Proof]] = {}
    for proof in proofs:
        rows.setdefault(proof.kernel, {})[proof.isa] = proof
    for kernel, by_isa in rows.items():
        inputs = max(proof.inputs for proof in by_isa.values())
        cells = [
            Text("=", style="green")
            if by_isa[isa].equal
            else Text(by_isa[isa].difference, style="bold red")
            for isa in isas
        ]
        table.add_row(kernel, str(inputs), *cells)
    out = console()
    out.print()
    if not isas:
        out.print("Only scalar kernels run here; there is nothing to compare.")
        return
    out.print(table)
    out.print()
    wrong = [proof for proof in proofs if not proof.equal]
    if wrong:
        out.print(f"{len(wrong)} kernels differ from scalar: do not trust answers.", style="red")
    else:
        out.print(f"{len(proofs)} comparisons with scalar, all equal bit for bit.")
