//! Modes: a number, which people often write in the wrong base.

use super::document::Value;
use super::field::{Field, Report, number};

/// All bits that a mode has.
const MODE_MAX: i64 = 0o7777;

/// Permissions that somebody means when the digits are read in octal, without special bits.
const USUAL: [u32; 22] = [
    0o400, 0o440, 0o444, 0o500, 0o550, 0o555, 0o600, 0o640, 0o644, 0o660, 0o664, 0o666, 0o700, 0o710, 0o711,
    0o744, 0o750, 0o755, 0o770, 0o775, 0o777, 0o754,
];

/// A mode with setuid, setgid and sticky.
pub(super) fn read(value: &Value<'_>, at: &Field<'_>, report: &mut Report) -> Option<u32> {
    if let Value::Text(text) = value {
        let hint = match u32::from_str_radix(text.trim_start_matches("0o"), 8) {
            Ok(mode) if i64::from(mode) <= MODE_MAX => {
                format!(": write 0{mode:o} in YAML, {mode} in JSON, without quotes")
            }
            _ => String::new(),
        };
        report.refuse(at, format!("it must be a number, not text{hint}"));
        return None;
    }
    let (number, octal) = number(value, at, report)?;
    let meant = if octal { None } else { misread(number) };
    if !(0..=MODE_MAX).contains(&number) {
        let hint = meant.map(|mode| format!("; for 0{mode:o} write 0{mode:o} in YAML, {mode} in JSON"));
        report.refuse(at, format!("a mode is at most 07777 (4095){}", hint.unwrap_or_default()));
        return None;
    }
    let mode = u32::try_from(number).ok()?;
    if let Some(meant) = meant.filter(|_| !is_usual(mode)) {
        let message =
            format!("{mode} is octal {mode:04o}; for 0{meant:o} write 0{meant:o} in YAML, {meant} in JSON");
        report.warn(at, message);
    }
    Some(mode)
}

/// The mode that somebody meant who wrote octal digits as a decimal number.
fn misread(number: i64) -> Option<u32> {
    let mode = u32::from_str_radix(&number.to_string(), 8).ok()?;
    is_usual(mode).then_some(mode)
}

fn is_usual(mode: u32) -> bool {
    i64::from(mode) <= MODE_MAX && USUAL.contains(&(mode & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::read::document::parse;

    /// What becomes of a mode: the bits, or the message; and what is warned of.
    fn mode(text: &str) -> (Option<u32>, Vec<String>) {
        let documents = parse(text).unwrap();
        let mut report = Report::default();
        let mode = read(&documents[0], &Field::file("x"), &mut report);
        let (problems, warnings) = report.into_problems();
        (mode, problems.into_iter().chain(warnings).map(|remark| remark.message).collect())
    }

    #[test]
    fn modes_are_read_in_every_spelling() {
        for (text, bits) in [
            ("420", 0o644),
            ("0644", 0o644),
            ("0o644", 0o644),
            ("384", 0o600),
            ("493", 0o755),
            ("511", 0o777),
            ("1023", 0o1777),
            ("2541", 0o4755),
            ("0", 0),
            ("4095", 0o7777),
            ("0x1a4", 0o644),
            ("04755", 0o4755),
            ("256", 0o400),
            ("416", 0o640),
            ("288", 0o440),
            ("292", 0o444),
            ("365", 0o555),
            ("448", 0o700),
            ("488", 0o750),
        ] {
            assert_eq!(mode(text), (Some(bits), vec![]), "{text}");
        }
    }

    #[test]
    fn octal_digits_in_decimal_are_warned_of() {
        for (text, bits, message) in [
            ("644", 0o1204, "644 is octal 1204; for 0644 write 0644 in YAML, 420 in JSON"),
            ("600", 0o1130, "600 is octal 1130; for 0600 write 0600 in YAML, 384 in JSON"),
            ("755", 0o1363, "755 is octal 1363; for 0755 write 0755 in YAML, 493 in JSON"),
            ("777", 0o1411, "777 is octal 1411; for 0777 write 0777 in YAML, 511 in JSON"),
            ("400", 0o620, "400 is octal 0620; for 0400 write 0400 in YAML, 256 in JSON"),
            ("1777", 0o3361, "1777 is octal 3361; for 01777 write 01777 in YAML, 1023 in JSON"),
        ] {
            assert_eq!(mode(text), (Some(bits), vec![message.to_owned()]), "{text}");
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for (text, message) in [
            ("\"0644\"", "it must be a number, not text: write 0644 in YAML, 420 in JSON, without quotes"),
            ("'rw-r--r--'", "it must be a number, not text"),
            ("4755", "a mode is at most 07777 (4095); for 04755 write 04755 in YAML, 2541 in JSON"),
            ("9999", "a mode is at most 07777 (4095)"),
            ("-1", "a mode is at most 07777 (4095)"),
            ("0899", "it must be a whole number"),
            ("6.44", "it must be a whole number"),
            ("[420]", "it must be a number, not a list"),
            ("rw", "it must be a whole number"),
        ] {
            assert_eq!(mode(text), (None, vec![message.to_owned()]), "{text}");
        }
    }
}
