"""The stand-in of CUDA's driver for tests: a test's first argument is the folder of the stand-in's libcuda.so.1."""
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

STANDIN = Path(sys.argv.pop(1)).resolve()


def stand_in(**settings):
    """Environment variables with which a command runs on the stand-in; docs/design/emulation.md lists the settings."""
    path = ":".join(filter(None, [str(STANDIN), os.environ.get("LD_LIBRARY_PATH")]))
    return {"LD_LIBRARY_PATH": path} | {f"TCC_EMULATION_{key.upper()}": str(value) for key, value in settings.items()}
