"""Reading what others wrote: within limits, without leaving the place it is in, and as data only.

``files``    a file of a store, or one that a user names, in at most so many bytes
``values``   JSON, and plain values of any origin, in bounded depth
``checks``   a field of a kind, or the words for what it is instead
"""
