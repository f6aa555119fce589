"""wire: formats and protocols as pure bytes and text. Nothing here knows a socket or a file.

FJ, the protocol of journals, is in `fj` (messages and how they become bytes), `fj_requests` (what a server
parses), `fj_replies` (what a client parses) and `fj_many` (many jobs in one request). Entries as text are in
`json_lines` and `json_rows`, schemas as text in `fields`; `arrow_size` tells how large Arrow is unpacked.
"""
