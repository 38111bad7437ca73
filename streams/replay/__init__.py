"""Shell: replay: the same folds over the same log once more, or with another recipe, into files or topics.

It writes nothing that anybody obeys: streams/replay/destination.py opens no live topic. Where to begin:
streams/replay/run.py. It imports no Faust: nothing is delivered, everything is read.
"""
