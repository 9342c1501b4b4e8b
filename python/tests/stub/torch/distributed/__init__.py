"""The part of torch.distributed that the plugin uses, for machines without torch. Names and arguments are torch 2.6's.

A store is one dictionary for each port, because all agents of a test are threads of one process.
"""

STORES = {}


class TCPStore:
    def __init__(self, host_name, port, world_size, is_master, timeout, *, wait_for_workers=True, master_listen_fd=None):
        """master_listen_fd"""
        self.address = (host_name, port)
        self.world_size, self.is_master, self.timeout = world_size, is_master, timeout
        assert is_master == (master_listen_fd is not None)
        # The server has keys of its own, as one that has just started; clients may come first.
        self.fd, self.values = master_listen_fd, STORES.setdefault(port, {})

    def set_timeout(self, timeout):
        self.timeout = timeout

    def add(self, key, amount):
        self.values[key] = self.values.get(key, 0) + amount
        return self.values[key]


class PrefixStore:
    def __init__(self, prefix, store):
        self.prefix, self.store = prefix, store
