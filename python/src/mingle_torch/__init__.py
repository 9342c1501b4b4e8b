"""``import torch`` calls :func:`register`, so that ``mingle://`` needs no import of its own: torch 2.5 and later load what has
an entry point in ``torch.backends``. An exception here would be one of ``import torch``.
"""


def register():
    try:
        from torch.distributed.rendezvous import register_rendezvous_handler
    except ImportError:
        return  # This torch was built without torch.distributed.
    register_rendezvous_handler("mingle", _rendezvous)


def _rendezvous(url, **options):
    from mingle.torch import rendezvous

    return rendezvous(url, **options)
