"""Write the pages: `python -m reference FOLDER`."""

import sys
from pathlib import Path

from reference import pages

for name, text in pages().items():
    Path(sys.argv[1], name).write_text(text, encoding="utf-8")
