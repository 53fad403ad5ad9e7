"""`python -m web.cli`."""

from web.cli import main

main()
