"""What happens to a log when the machine under it does its worst.

`disks` does the harm, `workload` writes entries that describe themselves, `judge` decides whether what is
left is right. HEADRACE_CAMPAIGN=1 makes every property try about fifty times as many examples.
"""
