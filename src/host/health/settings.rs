//! `[health]` of `/etc/mcd/mcd.toml`. What is wrong there is said, and the default is taken: a typing
//! error must neither stop nor undo a boot.

use std::time::Duration;

use cap_std_ext::cap_std::fs::Dir;
use toml::{Table, Value};

/// The file, seen from the root.
const FILE: &str = "etc/mcd/mcd.toml";

/// How checks are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a boot has until every required check must have passed.
    pub deadline: Duration,
    /// Between two rounds of checks.
    pub interval: Duration,
    /// How long one check may take.
    pub timeout: Duration,
    /// What is wrong with the file.
    pub warnings: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(600),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
            warnings: Vec::new(),
        }
    }
}

impl Settings {
    /// Those of this root.
    pub fn of(root: &Dir) -> Self {
        match root.read_to_string(FILE) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::default(),
            Err(error) => Self {
                warnings: vec![format!("/{FILE} cannot be read ({error}): the defaults are used")],
                ..Self::default()
            },
        }
    }

    fn parse(text: &str) -> Self {
        let mut settings = Self::default();
        let table: Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                let why = error.to_string();
                let why = why.lines().next().unwrap_or_default();
                settings.warnings.push(format!("/{FILE} is no TOML ({why}): the defaults are used"));
                return settings;
            }
        };
        let Some(health) = table.get("health") else { return settings };
        let Some(health) = health.as_table() else {
            settings.warnings.push(format!("/{FILE}: health is no table: the defaults are used"));
            return settings;
        };
        for (name, value) in health {
            let place = match name.as_str() {
                "deadline" => &mut settings.deadline,
                "interval" => &mut settings.interval,
                "timeout" => &mut settings.timeout,
                _ => {
                    settings.warnings.push(format!("/{FILE}: health.{name} is unknown"));
                    continue;
                }
            };
            match duration(value) {
                Some(duration) => *place = duration,
                None => settings.warnings.push(format!(
                    "/{FILE}: health.{name} is no time from 1 second to a day (such as 90, \"90s\" or \"10m\"): \
                     the default is used"
                )),
            }
        }
        settings
    }
}

/// Seconds as a number, or a number with `s`, `m` or `h`.
fn duration(value: &Value) -> Option<Duration> {
    let seconds = match value {
        Value::Integer(seconds) => u64::try_from(*seconds).ok()?,
        Value::String(text) => {
            let (number, unit) =
                text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
            let unit = match unit.trim() {
                "" | "s" => 1,
                "m" | "min" => 60,
                "h" => 3600,
                _ => return None,
            };
            number.parse::<u64>().ok()?.checked_mul(unit)?
        }
        _ => return None,
    };
    (1..=86_400).contains(&seconds).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_and_the_rest_counts() {
        let good = Settings::parse("[health]\ndeadline = \"2m\"\ninterval = 3\n[boot]\ntries = 3\n");
        assert_eq!((good.deadline.as_secs(), good.interval.as_secs(), good.timeout.as_secs()), (120, 3, 60));
        assert!(good.warnings.is_empty());
        let bad = Settings::parse("[health]\ndeadline = \"soon\"\ninterval = 0\ntimeout = 9\ncolour = 1\n");
        assert_eq!((bad.deadline.as_secs(), bad.interval.as_secs(), bad.timeout.as_secs()), (600, 5, 9));
        let said = bad.warnings.join("\n");
        assert!(said.contains("health.deadline") && said.contains("health.interval"), "{said}");
        assert!(said.contains("health.colour is unknown"), "{said}");
        assert!(Settings::parse("[health").warnings[0].contains("is no TOML"));
        assert!(Settings::parse("health = 1").warnings[0].contains("no table"));
    }
}
