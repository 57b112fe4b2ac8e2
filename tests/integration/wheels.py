"""Small wheels that tests make, in place of an index."""

import base64
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, code: str) -> Path:
    """Write a wheel with one module of its own name."""
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\n"
        f"Version: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        f"{path},sha256={_digest(text)},{len(text)}" for path, text in files.items()
    ]
    files[f"{about}/RECORD"] = "\n".join([*rows, f"{about}/RECORD,,"]) + "\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name_, text in files.items():
            wheel.writestr(name_, text)
    return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def make_source(folder: Path, name: str, setup: str) -> Path:
    """Write a source distribution; building it runs the code in `setup`."""
    path = folder / f"{name}-1.0.tar.gz"
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        # A backend of its own, so that nothing else has to be downloaded.
        "backend.py": setup,
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\n'
        'backend-path = ["."]\n',
    }
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{name}-1.0/{file}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def index_of(folder: Path) -> dict[str, str]:
    """Return the settings by which a node gets packages from this folder alone."""
    settings = folder / "uv.toml"
    settings.write_text(f'no-index = true\nfind-links = ["{folder}"]\n')
    return {"UV_CONFIG_FILE": str(settings)}
