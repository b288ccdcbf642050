//! Which reboot serves. Decisions only.

/// What a soft reboot depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// `ostree admin` knows `prepare-soft-reboot`.
    pub ostree_can: bool,
    /// systemd knows `soft-reboot` (version 254).
    pub systemd_can: bool,
    /// The next boot has the same kernel and initramfs as the running one.
    pub same_kernel: bool,
    /// And the same kernel arguments.
    pub same_arguments: bool,
}

/// What stands in the way of a soft reboot; none where it serves.
pub fn obstacle(facts: Facts) -> Option<&'static str> {
    let obstacles = [
        (facts.ostree_can, "this libostree has no `ostree admin prepare-soft-reboot`"),
        (facts.systemd_can, "this systemd has no soft-reboot.target"),
        (facts.same_kernel, "the kernel or the initramfs changes"),
        (facts.same_arguments, "the kernel arguments change"),
    ];
    obstacles.into_iter().find(|(is_fine, _)| !is_fine).map(|(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_obstacle_is_enough() {
        let all = Facts { ostree_can: true, systemd_can: true, same_kernel: true, same_arguments: true };
        assert_eq!(obstacle(all), None);
        assert!(obstacle(Facts { ostree_can: false, ..all }).unwrap().contains("prepare-soft-reboot"));
        assert!(obstacle(Facts { systemd_can: false, ..all }).unwrap().contains("soft-reboot.target"));
        assert!(obstacle(Facts { same_kernel: false, ..all }).unwrap().contains("kernel"));
        assert!(obstacle(Facts { same_arguments: false, ..all }).unwrap().contains("arguments"));
    }
}
