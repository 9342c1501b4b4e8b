"""The part of jax._src.clusters that mingle.jax uses, for machines without JAX. Names, arguments and the order of the
questions are JAX 0.10.2's.
"""

import os


class ClusterEnv:
    name = ""
    opt_in_only_method = False
    _cluster_types = []

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls._cluster_types.append(cls)

    @classmethod
    def auto_detect_unset_distributed_params(cls, address, count, index, devices, method, timeout):
        known = cls._cluster_types
        if method is not None:
            env = next((env for env in known if env.name == method), None)
        else:
            env = next((env for env in known if not env.opt_in_only_method and env.is_env_present()), None)
        if env is not None:
            if address is None:
                port = os.environ.get("JAX_COORDINATOR_PORT")
                address = env.get_coordinator_address(timeout_secs=timeout, override_coordinator_port=port)
            count = env.get_process_count() if count is None else count
            index = env.get_process_id() if index is None else index
            if devices is None and (local := env.get_local_process_id()) is not None:
                devices = [local]
        return address, count, index, devices


class SlurmCluster(ClusterEnv):
    name = "slurm"

    @classmethod
    def is_env_present(cls):
        return "SLURM_JOB_ID" in os.environ
