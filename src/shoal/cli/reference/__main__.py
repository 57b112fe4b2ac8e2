"""Write the pages: `python -m shoal.cli.reference FOLDER`."""

import sys
from pathlib import Path

from shoal.cli.reference import pages

for name, text in pages().items():
    Path(sys.argv[1], name).write_text(text, encoding="utf-8")
