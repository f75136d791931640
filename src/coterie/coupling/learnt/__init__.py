"""Who is coupled to whom, learnt from the clients' models while they train: pure rules, a file
each.
"""
