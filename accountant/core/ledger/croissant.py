"""Croissant: what a published file is, for the loaders and catalogues of machine learning.

The form is that of MLCommons, 1.0. Every fact in it stands in the data card too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from accountant.core.files.rows import Column

_CR = "http://mlcommons.org/croissant/"
_NAMES = ("recordSet", "field", "source", "extract", "column", "fileObject", "citeAs")
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": _CR,
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{name: f"cr:{name}" for name in _NAMES},
}
_TYPES = {"boolean": "Boolean", "integer": "Integer", "number": "Float", "text": "Text"}
#: Media types as readers of Croissant name them, where they differ.
_FORMATS = {
    "application/x-ndjson": "application/jsonlines",
    "application/vnd.apache.parquet": "application/x-parquet",
}


@dataclass(frozen=True)
class DataFile:
    """A file that lies beside its metadata. `columns`: none if it is no table."""

    name: str
    media_type: str
    columns: Iterable[Column] = ()
    sha256: str = ""


def croissant(
    card: Mapping[str, Any], file: DataFile, about: Mapping[str, Any], made: date
) -> dict[str, Any]:
    """Return the metadata of a file. `about`: its `license` and `language`, as whoever exports it
    says.
    """
    source = {"fileObject": {"@id": "data"}}
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"records/{column.name}",
            "name": column.name,
            "dataType": f"sc:{_TYPES[column.kind]}",
            "source": {**source, "extract": {"column": column.name}},
        }
        for column in file.columns
        if column.kind in _TYPES
    ]
    records = {"@type": "cr:RecordSet", "@id": "records", "name": "records", "field": fields}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": f"{_CR}1.0",
        "name": f"job-{card['job']}",
        "description": f"{card['guarantee']} {card['statement']['text']}",
        "license": about["license"],
        "inLanguage": about["language"],
        "url": f"urn:uuid:{card['job']}",
        "citeAs": card["cite"],
        "datePublished": made.isoformat(),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "data",
                "name": file.name,
                "contentUrl": file.name,
                "encodingFormat": _FORMATS.get(file.media_type, file.media_type),
                "sha256": file.sha256,
            }
        ],
        "recordSet": [records] if fields else [],
    }
