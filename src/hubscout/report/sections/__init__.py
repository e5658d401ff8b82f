"""The parts of a report, one file each: a function from a run to a `Section`, or to None where it has nothing."""
