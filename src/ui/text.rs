//! Sizes, times and foreign text, as people read them.

use crate::plan::Bytes;

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// Seconds since the epoch as `2026-11-30 22:49 UTC`: hosts of a fleet are compared, so no local
/// zone.
pub fn time(seconds: i64) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(stamp) => stamp.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => format!("@{seconds}"),
    }
}

/// Foreign text on one line, without control characters.
pub fn clean(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `1 layer`, `2 layers`.
pub(super) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// At most `width` characters, the last one `…` where something was cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn times_are_utc_and_never_fail() {
        assert_eq!(time(0), "1970-01-01 00:00 UTC");
        assert_eq!(time(1_796_079_000), "2026-11-30 22:50 UTC");
        assert_eq!(time(i64::MAX), format!("@{}", i64::MAX));
    }

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        assert_eq!(clean("a\x1b[2Jb\nc\r\u{9b}d "), "a [2Jb c  d");
        assert_eq!(cut("glibc, bash", 6), "glibc…");
        assert_eq!(cut("ünï", 3), "ünï");
    }
}
