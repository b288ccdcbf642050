//! A hold: a person keeps this host from being drained or rebooted by itself.
//!
//! `/etc/mcd/hold` holds while it is there: `[UNTIL] WHY`, UNTIL being a time as RFC 3339 has it. An empty
//! file holds too, without a reason.

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use crate::host::durable;
use crate::model::wire::Hold;

/// The file, below a root.
pub const HOLD_FILE: &str = "etc/mcd/hold";
const FOLDER: &str = "etc/mcd";
const NAME: &str = "hold";

/// The hold on the host with this root; none if there is none, or it is over.
///
/// # Errors
///
/// The file cannot be read.
#[context("Reading /{HOLD_FILE}")]
pub fn hold_of(root: &Dir, now: i64) -> Result<Option<Hold>> {
    Ok(durable::read(root, HOLD_FILE)?
        .map(|bytes| Hold::parse(&String::from_utf8_lossy(&bytes)))
        .filter(|hold| hold.lasts(now)))
}

/// Places a hold, instead of one that is there.
///
/// # Errors
///
/// The file cannot be written.
#[context("Writing /{HOLD_FILE}")]
pub fn place_hold(root: &Dir, hold: &Hold) -> Result<()> {
    let until = hold.until.and_then(|until| jiff::Timestamp::from_second(until).ok());
    let why = hold.why.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = until.map_or_else(|| format!("{why}\n"), |until| format!("{until} {why}\n"));
    durable::replace(&durable::folders(root, FOLDER)?, NAME, text.as_bytes())
}

/// Lifts the hold; tells whether there was one.
///
/// # Errors
///
/// The file cannot be removed.
#[context("Removing /{HOLD_FILE}")]
pub fn lift_hold(root: &Dir) -> Result<bool> {
    if !root.try_exists(HOLD_FILE)? {
        return Ok(false);
    }
    durable::remove(&root.open_dir(FOLDER)?, NAME)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use cap_std_ext::cap_std::ambient_authority;

    use super::*;

    #[test]
    fn a_hold_holds_until_it_is_lifted_or_over() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        assert_eq!(hold_of(&root, 0).unwrap(), None);
        assert!(!lift_hold(&root).unwrap());

        let hold = Hold { why: "disk swap\nby Ann".to_owned(), until: Some(1000) };
        place_hold(&root, &hold).unwrap();
        let seen = hold_of(&root, 999).unwrap().unwrap();
        assert_eq!((seen.why.as_str(), seen.until), ("disk swap by Ann", Some(1000)));
        assert_eq!(hold_of(&root, 1000).unwrap(), None, "it is over");

        place_hold(&root, &Hold { why: "2 disks".to_owned(), until: None }).unwrap();
        assert_eq!(hold_of(&root, i64::MAX).unwrap().unwrap().why, "2 disks");
        root.write(HOLD_FILE, "").unwrap();
        assert_eq!(hold_of(&root, 5).unwrap(), Some(Hold::default()), "an empty file holds");
        assert!(lift_hold(&root).unwrap());
        assert_eq!(hold_of(&root, 5).unwrap(), None);
    }
}
