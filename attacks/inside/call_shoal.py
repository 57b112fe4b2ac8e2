"""Call the API of the task's own shoal, method by method, and say what came back.

Each line printed is a method, then what the node answered: an error, or an answer.
"""

import json
import os
import socket
import struct
import sys

ANSWER, ERROR, END = 0, 1, 2


def call(method: str, request: bytes) -> str:
    """Return what a call came to."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(20.0)
        line.connect(os.environ["SHOAL_SOCKET"])
        line.sendall(b'{"call": "api"}\n')
        first = line.recv(65_536)
        if b"error" in first:
            return f"no way: {json.loads(first)['because']}"
        body = bytes((ANSWER,)) + method.encode() + b"\0" + request
        line.sendall(struct.pack("<I", len(body)) + body)
        data = b""
        while len(data) < 5 or len(data) < 4 + struct.unpack("<I", data[:4])[0]:
            part = line.recv(65_536)
            if not part:
                return "hung up"
            data += part
    kind, told = data[4], data[5:]
    said = ascii(told.decode(errors="replace"))
    return f"error {said}" if kind == ERROR else f"answer {said}"


for argument in sys.argv[1:]:
    name, _, told = argument.partition("=")
    field = bytes((10, len(told))) + told.encode() if told else b""  # string 1
    print(argument, call(name, field), flush=True)
