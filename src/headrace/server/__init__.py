"""Servers: what speaks to other processes. Only here, in `client` and in the commands is there an event loop.

Where to look: `fj` serves one journal over FJ (`fj_connection` is one peer, `fj_functions` and
`fj_job_functions` say what each function does); `node` serves a whole store, `http` is its face
(`http_streams`, `http_journals`), and `stream_desk` is where everybody's entries of one stream are published.
"""
