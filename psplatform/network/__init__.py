"""Plans of transfers: what is sent when, which way, and what is not worth sending.

R. Viswanathan and A. Akella, "Network-accelerated Distributed Machine Learning Using MLfabric", 2020: updates on their
way to the parameter servers are ordered (`ordering`), summed by aggregators on the way (`grouping`) and new parameters
spread through relays (`relaying`), on the rates that the interfaces have left (`rates`, `state`).  A plan is advice:
what is applied, and in which order, is decided when it arrives, so that a wrong plan costs time and nothing else.
"""
