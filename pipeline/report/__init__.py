"""Pictures and the report page of a run: plain arrays and mappings in, PNG bytes and HTML text out."""
