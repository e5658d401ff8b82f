"""Run a backbone over a task once; cache what comes out."""
