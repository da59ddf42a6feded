"""What a run tells about itself: an append-only event log, and the picture that readers fold from it.

The coordinator's driver is the only writer; dashboards, command lines and tests read, in any number, while the run is
on or years later.

===============  =======================================================================================
module           idea
===============  =======================================================================================
``log``          the bytes of immutable ``segments`` in a ``folder`` that any fsspec URL can name, each there whole
                 or not at all; `EventLog` (``writer``) brings records out as segments of one term, `LogReader`
                 (``reader``) reads on from a position, and a higher term supersedes what it did not continue;
                 ``renewal`` of a log that was removed; ``kinds`` of records, and their fields
``follow``       `LiveRun`: a run's picture that keeps up with its log
``read_model``   `RunView`: folds records, one by one or many at once, into the picture
``picture``      all that is known about a run, and its summary
``workers``      the part of the picture that belongs to one slot
``protection``   the part about copies: how far they lag, which there are, and when one took over
``checkpoints``  the part about checkpoints
``words``        what a summary says in words
``measures``     bounded series, tallies, delays and drops: what the picture is made of
===============  =======================================================================================

Guarantees: a reader sees whole records, in the writer's order, none twice.  A writer that dies loses what it had not
flushed and leaves at worst one hidden temporary file.  The same records give the same bytes.

Assumptions: terms are handed out once (the coordinator's lease does it); the file system renames atomically, or the
object store puts atomically, and a listing shows what was there when it began.  Segments are not synced to the disk
one by one: a power failure, unlike a killed process, may cost the newest of them.
"""
