//! Real boots: a disk, in a machine that qemu emulates.
//!
//! * [`installation`]: the installed host that stories begin with, and the registry beside it.
//! * [`disk`]: the disk, as whoever mounts it sees it.
//! * [`boot_menu`]: the disk as a boot loader sees it: what is in the raw blocks, no journal replayed.
//! * [`machine`]: the machine: boot it, say something in it, reboot it, cut its power.
//! * [`qemu`], [`agent`]: the emulator, and who does in the guest what a story says.
//! * [`block_log`], [`power_loss`], [`verdict`]: what a run wrote, in order, the disks that a power cut
//!   may leave, and what must be true of them.
//!
//! The harness stands for the boot loader alone: kernel, initramfs, the root, systemd and everything
//! above it are the disk's own. Emulation is by translation (TCG) everywhere: a CI machine's
//! `/dev/kvm` may well open and then not run a stock kernel.

pub mod agent;
pub mod block_log;
pub mod boot_menu;
pub mod disk;
pub mod installation;
pub mod machine;
pub mod power_loss;
pub mod qemu;
pub mod verdict;
