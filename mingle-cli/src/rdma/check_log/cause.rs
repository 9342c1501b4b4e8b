//! Why a network was not used, or not as well as it could be, and what to do.

use super::{Cause, Log, Verdict};

/// What the log gives as reasons, the likeliest first.
pub(super) fn find(log: &Log, verdict: Verdict) -> Vec<Cause> {
    let mut causes = Vec::new();
    let sockets = log.total.sockets > 0
        || (verdict == Verdict::NoChannel && log.networks.names().any(|name| name == "Socket"));
    if log.networks.counts.len() > 1 {
        let names: Vec<_> = log.networks.names().map(String::as_str).collect();
        // NVIDIA/nccl#234.
        causes.push(cause(
            format!("the ranks have chosen different networks: {}", names.join(", ")),
            "ranks with different networks wait for each other for ever; make all nodes alike, or set \
             NCCL_NET or NCCL_IB_DISABLE=1 on all",
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
    if verdict == Verdict::NoChannel {
        causes.push(cause(
            "no rank tells of a channel".to_owned(),
            "either NCCL has not come that far: see the warnings; or it was told to say less: run with \
             NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET",
        ));
    }
    causes
}

/// Why sockets.
fn sockets_used(log: &Log) -> Vec<Cause> {
    let mut causes = Vec::new();
    let set = |name: &str| value(log, name);
    // NCCL_PARAM(IbDisable) in src/transport/net_ib.cc: any number but 0.
    if set("NCCL_IB_DISABLE").is_some_and(|value| value != "0") {
        causes.push(cause("NCCL_IB_DISABLE is set".to_owned(), "unset NCCL_IB_DISABLE, or set it to 0"));
    }
    if set("NCCL_NET").is_some_and(|value| value.eq_ignore_ascii_case("Socket")) {
        causes.push(cause("NCCL_NET asks for sockets".to_owned(), "unset NCCL_NET"));
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
            "`mingle rdma` tells which devices there are, and why they cannot be used; a container needs \
             /dev/infiniband, and NCCL_IB_HCA must fit a device whose port is up",
        ));
    }
    if causes.is_empty() && !log.hcas.is_empty() {
        let hcas: Vec<_> = log.hcas.names().map(String::as_str).collect();
        causes.push(cause(
            format!("RDMA devices were found, and yet sockets are used: {}", hcas.join(", ")),
            "look whether they are found on every node, and for NCCL_NET, NCCL_NET_PLUGIN and the warnings",
        ));
    }
    if causes.is_empty() {
        causes.push(cause(
            "the log does not say why".to_owned(),
            "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET; `mingle rdma` tells which devices \
             there are",
        ));
    }
    causes
}

/// Why the data takes the way through the host's memory.
fn no_gpudirect(log: &Log) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !log.refuse.is_empty() {
        let devices: Vec<_> = log.refuse.names().map(String::as_str).collect();
        let devices = devices.join(", ");
        // src/transport/net_ib/gdr.cc, 2.30.7: one of three files of a module below /sys, or a trial with
        // ibv_reg_dmabuf_mr; the two sides of DMA-BUF are asked apart.
        causes.push(if log.dma_buf {
            cause(
                format!(
                    "GPUDirect RDMA is off for {devices}: the GPU's driver has DMA-BUF, and the adapter's \
                     has not; nor is there a peer memory module"
                ),
                "load nvidia_peermem (modprobe nvidia_peermem), or update the adapter's driver and \
                 rdma-core; NCCL_DMABUF_ENABLE must not be 0",
            )
        } else {
            cause(
                format!("GPUDirect RDMA is off for {devices}: neither a peer memory module nor DMA-BUF"),
                "load nvidia_peermem on the host (modprobe nvidia_peermem; the old one is nv_peer_mem), or \
                 use the open kernel modules of the GPU's driver with Linux 5.12 or newer, for DMA-BUF",
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
            "the adapters can do GPUDirect RDMA, and some channels do without".to_owned(),
            "adapter and GPU are probably too far from each other: `nvidia-smi topo -m` shows it, and \
             NCCL_NET_GDR_LEVEL sets how far they may be",
        ));
    }
    if causes.is_empty() && !log.ways.names().any(|way| way == "NET/IB" || way.starts_with("NET/IBext")) {
        causes.push(cause(
            "the network's plugin does without GPUDirect RDMA".to_owned(),
            "the plugin says why in lines of its own; that for EFA begins them with NET/OFI",
        ));
    }
    if causes.is_empty() {
        causes.push(cause(
            "NET/IB without GDRDMA: probably no peer memory module is loaded, and there is no DMA-BUF"
                .to_owned(),
            "load nvidia_peermem on the host (modprobe nvidia_peermem); NCCL_DEBUG_SUBSYS=INIT,ENV,NET tells \
             more",
        ));
    }
    causes
}

/// The value of a variable; of several, one that is not 0.
fn value<'a>(log: &'a Log, name: &str) -> Option<&'a str> {
    let values = log.settings.names().filter_map(|setting| setting.split_once('='));
    values.filter(|(known, _)| *known == name).map(|(_, value)| value).max_by_key(|value| *value != "0")
}

fn cause(cause: String, cure: &'static str) -> Cause {
    Cause { cause, cure }
}
