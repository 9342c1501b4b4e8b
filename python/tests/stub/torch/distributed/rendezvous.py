"""The part of torch.distributed.rendezvous that mingle:// uses, for machines without torch. Names are torch 2.6's."""

from urllib.parse import urlsplit

HANDLERS = {}


def register_rendezvous_handler(scheme, handler):
    if scheme in HANDLERS:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    HANDLERS[scheme] = handler


def rendezvous(url, **options):
    scheme = urlsplit(url).scheme
    if scheme not in HANDLERS:
        raise RuntimeError(f"No rendezvous handler for {scheme}://")
    return HANDLERS[scheme](url, **options)
