"""Makes the types of docs/openapi.json, and the client without asyncio of that with it. --check says whether that is
what is there."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent.parent
PACKAGE = HERE / "src" / "holdfastdb"
DOCUMENT = HERE.parent.parent / "docs" / "openapi.json"

# What is async, and what it is without; in this order.
WORDS = [
    (r"^import asyncio\n", ""),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b__a(iter|next|enter|exit)__\b", r"__\1__"),
    (r"\ba(close|read|iter_bytes)\b", r"\1"),
    (r"\bAsync(?=[A-Z])", ""),
]


def types() -> str:
    """The types of the document. Base64 of the wire is bytes to programs: _wire.py changes one into the other."""
    document = json.loads(DOCUMENT.read_text())

    def walk(x: object) -> None:
        if isinstance(x, dict):
            if x.get("contentEncoding") == "base64":
                del x["contentEncoding"], x["pattern"]
                x["format"] = "binary"
            for v in x.values():
                walk(v)
        elif isinstance(x, list):
            for v in x:
                walk(v)

    walk(document)
    with tempfile.TemporaryDirectory() as tmp:
        source, made = Path(tmp, "openapi.json"), Path(tmp, "api.py")
        source.write_text(json.dumps(document))
        options = [
            "--input", str(source), "--output", str(made), "--input-file-type", "openapi",
            "--output-model-type", "typing.TypedDict", "--target-python-version", "3.11", "--openapi-scopes", "schemas",
            "--use-schema-description", "--use-union-operator", "--use-standard-collections", "--disable-timestamp",
            "--formatters", "ruff-format",
        ]  # fmt: skip
        # It looks for ruff where commands are, and that is beside this Python.
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        subprocess.run([sys.executable, "-m", "datamodel_code_generator", *options], check=True, env=env)
        text = re.sub(r"\A(#.*\n)+", "", made.read_text()).lstrip()
    return f'"""Made by scripts/generate.py, of docs/openapi.json. Do not edit it."""\n\n{text}'


def without_async(text: str) -> str:
    for word, other in WORDS:
        text = re.sub(word, other, text, flags=re.MULTILINE)
    return "# Made by scripts/generate.py, of the client for asyncio. Do not edit it.\n" + text


def main() -> None:
    made = {
        PACKAGE / "api.py": types(),
        PACKAGE / "_sync" / "client.py": without_async((PACKAGE / "_async" / "client.py").read_text()),
    }
    for name, text in made.items():
        shown = str(name.relative_to(HERE))
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "format", "--stdin-filename", shown, "-"],
            input=text, capture_output=True, text=True, check=True, cwd=HERE,
        )  # fmt: skip
        if "--check" not in sys.argv:
            name.parent.mkdir(exist_ok=True)
            name.write_text(done.stdout)
        elif name.read_text() != done.stdout:
            sys.exit(f"{shown} is not what it is made of; run: python scripts/generate.py")


main()
