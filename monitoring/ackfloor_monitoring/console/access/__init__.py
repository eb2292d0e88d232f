"""Who may reach the console, and what each may see and do there.

Theory: whoever can make an operator's browser send a request must not act as that operator, and
whoever can reach the port is nobody until a token says who. So four questions are asked of each
request, in this order, and each has a file: is it meant for this console (`hosts`), who sends it
(`tokens`, `sessions`, `login_attempts`), does it come from our own page (`request_origin`), and
may this person do that (`roles`). `binding` refuses addresses where the answers could be read or
changed on the way.
"""
