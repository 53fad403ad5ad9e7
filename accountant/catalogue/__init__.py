"""What jobs may name: datasets, models, public corpora, and the files people bring."""
