"""client: talking to a server. `fj` is the client of journals, blocking and async; the spool keeps what the
server cannot take yet, and the forwarder brings it there."""
