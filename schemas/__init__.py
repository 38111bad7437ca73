"""Pure: the one language that all services share. They meet here and nowhere else.

Next: schemas/events/__init__.py
"""
