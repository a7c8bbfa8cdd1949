"""Which extra of this project brings a library that is not installed, in words that can be typed."""

import importlib.util

from mechanism.errors import MechanismError

#: The extra that brings a library, by the library's name. Of several extras, the smallest that does.
EXTRAS = {
    "numpy": "run",
    "safetensors": "run",
    "rich": "run",
    "numba": "fast",
    "jinja2": "report",
    "markupsafe": "report",
    "rocrate": "package",
    "bagit": "package",
    "securesystemslib": "package",
    "cryptography": "package",
    "transformers": "hf",
    "torch": "hf",
    "vllm": "gpu",
}


def lacking(fault: ImportError) -> str | None:
    """What to install so that an import succeeds; None for what no extra brings, which is a fault of ours."""
    library = (fault.name or "").partition(".")[0]
    return None if library not in EXTRAS else _install(library)


def require(*libraries: str) -> None:
    """Raise MechanismError for a library that is not installed; none is imported."""
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            raise MechanismError(_install(library))


def _install(library: str) -> str:
    extra = EXTRAS[library]
    return (
        f"expected the library {library}, found none; install the extra `{extra}`: in the project's folder:"
        f" pip install -e '.[{extra}]'"
    )
