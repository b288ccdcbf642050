//! Pauses between tries that grow.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Seconds to pause after failure number `attempt` (from 1) in a row: `first`, then twice as long each
/// time, `most` at the longest.
pub fn doubled(first: u64, most: u64, attempt: u32) -> u64 {
    let factor = 1_u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX);
    first.saturating_mul(factor).min(most)
}

/// Up to a fifth more, at random: a fleet that failed together does not come back together.
pub fn jitter(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 1000;
    pause + pause * u32::try_from(random).unwrap_or(0) / 5000
}

#[cfg(test)]
mod tests {
    use super::doubled;

    #[test]
    fn pauses_grow_and_end() {
        assert_eq!(
            [0, 1, 2, 3, 4, 90, u32::MAX].map(|attempt| doubled(1, 5, attempt)),
            [1, 1, 2, 4, 5, 5, 5]
        );
        assert_eq!(doubled(10, u64::MAX, 63), u64::MAX);
    }
}
