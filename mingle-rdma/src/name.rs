//! The names that NCCL's variables can carry.

/// The longest name that the kernel gives a device (`IB_DEVICE_NAME_MAX`), and the longest for which NCCL has
/// room (`prefix` of `struct netIf`), in bytes. Only a snapshot can hold a longer one.
const LONGEST_DEVICE: usize = 63;

/// Whether NCCL's variables can carry this interface name. Linux allows every byte but `/` and white space;
/// NCCL splits its list at `,` and reads a port after `:`.
pub fn is_nameable(interface: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '@' | '+');
    !interface.is_empty() && interface.chars().all(plain)
}

/// Whether NCCL's variables can carry this name of an RDMA device.
pub(super) fn is_nameable_device(device: &str) -> bool {
    is_nameable(device) && device.len() <= LONGEST_DEVICE
}
