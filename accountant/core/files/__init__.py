"""File formats: recognising uploads, Parquet and rows, all in bounded memory and time."""
