"""The part of torch.distributed.elastic.rendezvous.api that the plugin uses. Names and arguments are torch 2.6's."""

from abc import ABC, abstractmethod
from dataclasses import dataclass


class RendezvousError(Exception):
    pass


class RendezvousClosedError(RendezvousError):
    pass


@dataclass
class RendezvousStoreInfo:
    master_addr: str
    master_port: int


@dataclass
class RendezvousInfo:
    store: object
    rank: int
    world_size: int
    bootstrap_store_info: RendezvousStoreInfo


class RendezvousHandler(ABC):
    @abstractmethod
    def get_backend(self): ...

    @abstractmethod
    def next_rendezvous(self): ...

    @abstractmethod
    def is_closed(self): ...

    @abstractmethod
    def set_closed(self): ...

    @abstractmethod
    def num_nodes_waiting(self): ...

    @abstractmethod
    def get_run_id(self): ...

    @abstractmethod
    def shutdown(self): ...


class RendezvousParameters:
    def __init__(self, backend, endpoint, run_id, min_nodes, max_nodes, local_addr=None, **kwargs):
        self.backend, self.endpoint, self.run_id = backend, endpoint, run_id
        self.min_nodes, self.max_nodes, self.local_addr, self.config = min_nodes, max_nodes, local_addr, kwargs

    def get_as_int(self, key, default=None):
        value = self.config.get(key, default)
        return None if value is None else int(value)
