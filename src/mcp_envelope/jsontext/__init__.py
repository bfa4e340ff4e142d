"""JSON as text: documents opened lazily, errors with line and column, positions in files."""
