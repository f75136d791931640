"""Runs seen from outside while they train: what they tell, how it is read, and a page over it."""
