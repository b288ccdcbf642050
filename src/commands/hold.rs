//! `mcd hold` and `mcd release`.

use anyhow::Result;
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;

use super::Ended;
use crate::error::Fault;
use crate::host::now;
use crate::host::service::{hold_of, lift_hold, place_hold};
use crate::model::wire::Hold;
use crate::options::HoldOptions;
use crate::ui::{Printer, time};

pub(super) fn run(options: HoldOptions, printer: &Printer) -> Result<Ended> {
    let root = Dir::open_ambient_dir("/", ambient_authority())?;
    let unwritable = |error: anyhow::Error| {
        Fault::failed("the hold of this host cannot be changed").why(format!("{error:#}")).next("use sudo")
    };
    match options {
        HoldOptions::Hold { seconds, why } => {
            let hold = Hold { why, until: seconds.map(|seconds| now().saturating_add(seconds)) };
            place_hold(&root, &hold).map_err(unwritable)?;
            let until = hold.until.map_or_else(|| "it is released".to_owned(), time);
            printer.say(&format!("nothing drains or reboots this host by itself until {until}"));
        }
        HoldOptions::Release => {
            let was = hold_of(&root, now())?;
            let had = lift_hold(&root).map_err(unwritable)?;
            printer.say(match (had, was) {
                (true, Some(_)) => "released: the cluster may drain and reboot this host again",
                (true, None) => "the hold was over; its file is removed",
                (false, _) => "nothing holds this host",
            });
        }
    }
    Ok(Ended::Done)
}
