"""The kernel: small things every layer above agrees on.

`errors` (what can go wrong, by what the caller can do), `clock` (time, injected),
`limits` (a bound on everything) and `names` (what may be called what).
Nothing here does I/O; nothing here imports another headrace package.
"""
