"""Plain calls: methods called with Python arguments, by handles and other clients.

``methods`` finds what can be called, ``exchange`` reads the requests of a method and makes its
answers, ``calls`` compiles the two into a handler, ``failures`` makes a status of what it raises.
``dispatcher`` puts all of them behind one door. Plain HTTP requests have a package of their own
beside this one, which takes ``methods`` from here.
"""
