"""Pure accounting: no database, no web, no torch."""
