"""`python -m normlab` does what `normlab` does."""

import sys

from normlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
