//! `--rate-limit`: a bucket of bytes that all streams of an import share.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The bucket. It fills with time, holds at most a second's worth, and may go into debt: who took
/// too much waits.
#[derive(Debug)]
pub(super) struct RateLimit {
    per_second: u64,
    state: Mutex<(Instant, f64)>,
}

impl RateLimit {
    /// At most this many bytes a second; zero would never end and counts as one.
    pub(super) fn new(per_second: u64) -> Self {
        Self { per_second: per_second.max(1), state: Mutex::new((Instant::now(), 0.0)) }
    }

    /// Takes bytes; waits until they were due.
    pub(super) async fn take(&self, bytes: u64) {
        tokio::time::sleep(self.due(bytes, Instant::now())).await;
    }

    #[allow(clippy::cast_precision_loss)] // Bytes of one read, and a rate: both far below 2^52.
    fn due(&self, bytes: u64, now: Instant) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = self.per_second as f64;
        let filled = state.1 + now.duration_since(state.0).as_secs_f64() * rate;
        let left = filled.min(rate) - bytes as f64;
        *state = (now, left);
        if left >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-left / rate) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debt_is_waited_for() {
        let limit = RateLimit::new(1000);
        let start = limit.state.lock().unwrap().0;
        let wait = |bytes, at_ms| limit.due(bytes, start + Duration::from_millis(at_ms)).as_millis();
        assert_eq!(wait(500, 0), 500);
        assert_eq!(wait(500, 500), 500);
        assert_eq!(wait(0, 1000), 0);
        // An idle hour does not save up more than a second.
        assert_eq!(wait(3000, 3_600_000), 2000);
    }
}
