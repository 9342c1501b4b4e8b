//! NCCL's lists of interfaces.

/// Whether a list in NCCL's syntax contains this interface, or a port of this device. The list has prefixes
/// of names; after `=` it has whole names; after `^` it excludes names. Behind a name and `:` is a port, of
/// which an interface has none (`parseStringList` and `matchIfList` in NCCL's `src/misc/utils.cc`).
pub fn nccl_list_has(list: &str, name: &str) -> bool {
    let (is_excluding, list) = list.strip_prefix('^').map_or((false, list), |rest| (true, rest));
    let (is_exact, list) = list.strip_prefix('=').map_or((false, list), |rest| (true, rest));
    let mut entries = list.split(',').filter(|entry| !entry.is_empty()).peekable();
    if entries.peek().is_none() {
        // NCCL takes an empty list for one with all.
        return !is_excluding;
    }
    let is_listed = entries.any(|entry| {
        let entry = entry.split(':').next().unwrap_or_default();
        if is_exact { entry == name } else { !entry.is_empty() && name.starts_with(entry) }
    });
    is_listed != is_excluding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_list_is_read_as_nccl_reads_it() {
        for (list, used) in [
            ("mlx5_1", [false, true, true]),
            ("=mlx5_1", [false, true, false]),
            ("=mlx5_1:1,mlx5_0:2", [true, true, false]),
            ("^mlx5_1", [true, false, false]),
            ("^=mlx5_1", [true, false, true]),
            ("mlx5_0:1,mlx5_10:1", [true, false, true]),
            ("mlx5_0:1:3:0,=mlx5_1", [true, false, false]),
            ("=mlx5_0::2", [true, false, false]),
            (":1", [false, false, false]),
            ("", [true, true, true]),
            ("^", [false, false, false]),
        ] {
            let has = |device| nccl_list_has(list, device);
            assert_eq!(["mlx5_0", "mlx5_1", "mlx5_10"].map(has), used, "{list}");
        }
    }
}
