"""wire: protocols as pure bytes. Bytes go in, requests and replies come out; nothing here knows a socket.

FJ, the protocol of journals, is in `fj.py` (messages and how they become bytes), `fj_requests.py` (what a
server parses) and `fj_replies.py` (what a client parses).
"""
