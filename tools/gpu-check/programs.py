"""Running programs, and what they say when they fail."""
import subprocess
import sys


def fail(message, status=1):
    print(f"gpu_check: error: {message}", file=sys.stderr)
    sys.exit(status)


def run(command, seconds, **more):
    """(status, output of both streams); a status of None says that it did not end in time."""
    try:
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=seconds, **more)
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")
    except OSError as problem:
        return 127, str(problem)
    return done.returncode, done.stdout.decode(errors="replace")


def torch_step(kit, name, batch, tokens, precision):
    """The command that times a workload in PyTorch; its steps are for the caller to add."""
    return [sys.executable, kit / "torch_step.py", name, "--batch", batch, "--device", "cuda", "--precision", precision, "--filled",
            *(["--seq", tokens] if tokens else [])]


def last_line(text, status):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    error = next((line for line in lines if "error" in line), lines[-1] if lines else "no message")
    return f"{error[:300]} ({'not at an end in time' if status is None else f'status {status}'})"
