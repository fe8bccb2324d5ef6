"""The program of the README runs."""

import os
import subprocess
import sys
from pathlib import Path

from harness import Harness

HERE = Path(__file__).parent.parent


def test_the_program_of_the_readme() -> None:
    program = (HERE / "examples" / "program.py").read_text()
    assert f"```python\n{program}```" in (HERE / "README.md").read_text()
    harness = Harness()
    try:
        env = {**os.environ, "HOLDFAST_URL": harness.url, "HOLDFAST_TOKEN": harness.token}
        done = subprocess.run(
            [sys.executable, "examples/program.py"], cwd=HERE, env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == (
            "paid at 1\nthe version is 1, not 0\n0 Placed {'items': 3}\n1 Paid {'amount': 5}\nreceipt for this order\n"
        )
    finally:
        harness.stop()
