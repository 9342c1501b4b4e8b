//! Why RDMA or GPUDirect RDMA was not used, and what to do about it.

use super::{Cause, Log, LogVerdict};

/// The causes that the log shows, the likeliest first.
pub(super) fn find(log: &Log, verdict: LogVerdict) -> Vec<Cause> {
    let mut causes = Vec::new();
    let sockets = log.total.sockets > 0
        || (verdict == LogVerdict::NoChannel && log.networks.names().any(|name| name == "Socket"));
    if log.networks.counts.len() > 1 {
        let names: Vec<_> = log.networks.names().map(String::as_str).collect();
        // NVIDIA/nccl#234.
        causes.push(cause(
            format!("the ranks have chosen different networks: {}", names.join(", ")),
            "ranks with different networks wait for each other for ever; give all nodes the same devices, or \
             set NCCL_NET or NCCL_IB_DISABLE=1 on all of them",
        ));
    }
    if log.versions.counts.len() > 1 {
        let versions: Vec<_> = log.versions.names().map(String::as_str).collect();
        causes.push(cause(
            format!("the ranks have different versions of NCCL: {}", versions.join(", ")),
            "use the same image, or the same installation, on all nodes",
        ));
    }
    if sockets {
        causes.extend(sockets_used(log));
    }
    if log.total.rdma > 0 {
        causes.extend(no_gpudirect(log));
    }
    if verdict == LogVerdict::NoChannel {
        causes.push(cause(
            "no rank reports a channel".to_owned(),
            "either NCCL ended before it opened channels (see the warnings), or it logs too little: run with \
             NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET",
        ));
    }
    causes
}

/// Why sockets were used.
fn sockets_used(log: &Log) -> Vec<Cause> {
    let mut causes = Vec::new();
    let set = |name: &str| value(log, name);
    // NCCL_PARAM(IbDisable) in src/transport/net_ib.cc: any number but 0.
    if set("NCCL_IB_DISABLE").is_some_and(|value| value != "0") {
        causes.push(cause("NCCL_IB_DISABLE is set".to_owned(), "unset NCCL_IB_DISABLE, or set it to 0"));
    }
    if set("NCCL_NET").is_some_and(|value| value.eq_ignore_ascii_case("Socket")) {
        causes.push(cause("NCCL_NET selects sockets".to_owned(), "unset NCCL_NET"));
    }
    if log.no_verbs {
        causes.push(cause(
            "libibverbs could not be opened".to_owned(),
            "install it in the image, with the library of the adapter: libibverbs1 and ibverbs-providers on \
             Debian and Ubuntu, libibverbs and rdma-core on Fedora and RHEL",
        ));
    }
    if log.no_device {
        let cause_of = match set("NCCL_IB_HCA") {
            Some(hca) => format!("NET/IB has found no device; NCCL_IB_HCA is {hca}"),
            None => "NET/IB has found no device".to_owned(),
        };
        causes.push(cause(
            cause_of,
            "`mingle rdma` shows the devices and why they cannot be used; a container needs /dev/infiniband, \
             and NCCL_IB_HCA must match a device whose port is active",
        ));
    }
    if causes.is_empty() && !log.hcas.is_empty() {
        let hcas: Vec<_> = log.hcas.names().map(String::as_str).collect();
        causes.push(cause(
            format!("RDMA devices were found, but sockets are used: {}", hcas.join(", ")),
            "check that every node finds its devices, and check NCCL_NET, NCCL_NET_PLUGIN and the warnings",
        ));
    }
    if causes.is_empty() {
        causes.push(cause(
            "the log does not say why".to_owned(),
            "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET; `mingle rdma` shows the devices",
        ));
    }
    causes
}

/// Why the data goes through the host's memory.
fn no_gpudirect(log: &Log) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !log.refuse.is_empty() {
        let devices: Vec<_> = log.refuse.names().map(String::as_str).collect();
        let devices = devices.join(", ");
        // src/transport/net_ib/gdr.cc, 2.30.7: NCCL looks for one of three files of a module below /sys, or
        // tries ibv_reg_dmabuf_mr. It checks DMA-BUF separately for the GPU and for the adapter.
        causes.push(if log.dma_buf {
            cause(
                format!(
                    "GPUDirect RDMA is off for {devices}: the GPU's driver supports DMA-BUF, the adapter's \
                     does not, and no peer memory module is loaded"
                ),
                "load nvidia_peermem (modprobe nvidia_peermem), or update the adapter's driver and \
                 rdma-core; NCCL_DMABUF_ENABLE must not be 0",
            )
        } else {
            cause(
                format!("GPUDirect RDMA is off for {devices}: neither a peer memory module nor DMA-BUF"),
                "load nvidia_peermem on the host (modprobe nvidia_peermem; its predecessor is nv_peer_mem), or, \
                 for DMA-BUF, use the open kernel modules of the GPU's driver with Linux 5.12 or newer",
            )
        });
    }
    if let Some(distance) = log.far.names().next() {
        causes.push(cause(
            format!("adapter and GPU are too far from each other for GPUDirect RDMA ({distance})"),
            "`nvidia-smi topo -m` shows which are near; NCCL_NET_GDR_LEVEL=SYS allows any distance, which is \
             slow across processors and needs ACS off",
        ));
    }
    for name in ["NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL"] {
        if let Some(value) = value(log, name).filter(|value| ["0", "LOC"].contains(value)) {
            causes.push(cause(format!("{name} is {value}, which turns GPUDirect RDMA off"), "unset it"));
        }
    }
    if causes.is_empty() && !log.register.is_empty() {
        causes.push(cause(
            "the adapters support GPUDirect RDMA, but some channels do not use it".to_owned(),
            "adapter and GPU are probably too far from each other: `nvidia-smi topo -m` shows the distance, and \
             NCCL_NET_GDR_LEVEL sets how far they may be",
        ));
    }
    if causes.is_empty() && !log.ways.names().any(|way| way == "NET/IB" || way.starts_with("NET/IBext")) {
        causes.push(cause(
            "the network plugin does not use GPUDirect RDMA".to_owned(),
            "see the plugin's own lines; those of the plugin for EFA begin with NET/OFI",
        ));
    }
    if causes.is_empty() {
        causes.push(cause(
            "NET/IB without GDRDMA: probably no peer memory module is loaded and DMA-BUF is not available"
                .to_owned(),
            "load nvidia_peermem on the host (modprobe nvidia_peermem); NCCL_DEBUG_SUBSYS=INIT,ENV,NET shows \
             more",
        ));
    }
    causes
}

/// The value of a variable. Of several values, one that is not 0.
fn value<'a>(log: &'a Log, name: &str) -> Option<&'a str> {
    let values = log.settings.names().filter_map(|setting| setting.split_once('='));
    values.filter(|(known, _)| *known == name).map(|(_, value)| value).max_by_key(|value| *value != "0")
}

fn cause(cause: String, cure: &'static str) -> Cause {
    Cause { cause, cure }
}
