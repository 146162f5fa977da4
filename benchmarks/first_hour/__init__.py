"""The first hour with pyserve and with others: one small service, and the same five mistakes."""
