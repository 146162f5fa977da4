"""Plain calls: methods called with Python arguments, by handles and other clients.

``methods`` finds the callable methods, ``exchange`` reads the requests of a method and makes its
answers, ``calls`` compiles the two into a handler and turns exceptions into statuses.
``dispatcher`` combines all of them. Plain HTTP requests have a package of their own beside this
one, which uses ``methods`` from here.
"""
