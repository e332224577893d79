"""The stand-in of CUDA's driver for tests: the first argument of the test is the folder of its libcuda.so.1."""
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

STANDIN = Path(sys.argv.pop(1)).resolve()


def stand_in(**settings):
    """Variables with which a command runs on the stand-in; settings are those of docs/design/emulation.md."""
    path = ":".join(filter(None, [str(STANDIN), os.environ.get("LD_LIBRARY_PATH")]))
    return {"LD_LIBRARY_PATH": path} | {f"TCC_EMULATION_{key.upper()}": str(value) for key, value in settings.items()}
