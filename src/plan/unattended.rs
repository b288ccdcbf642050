//! What would leave a machine standing until a person comes, although mcd could take it back: a boot is
//! counted when the next one begins. Decisions only.

use crate::model::kargs::KernelArguments;

/// What to say of a host before it boots something new. `arguments` are those of the new deployment;
/// `is_watched`: systemd feeds a hardware watchdog, which bites when that ends.
pub fn waits_for_a_person(arguments: &KernelArguments, is_watched: bool) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    if !arguments.arguments().iter().any(|argument| restarts(argument)) {
        warnings.push(
            "a kernel that panics would wait for a person, and not be gone back from: there is no panic=SECONDS \
             (add --karg-append panic=10)",
        );
    }
    if !is_watched {
        warnings.push(
            "a boot that hangs would wait for a person, and not be gone back from: systemd feeds no hardware \
             watchdog (RuntimeWatchdogSec= in /etc/systemd/system.conf)",
        );
    }
    warnings
}

/// `panic=` with seconds to wait, or with a negative number for at once; zero is for ever.
fn restarts(argument: &str) -> bool {
    let value = argument.strip_prefix("panic=").and_then(|value| value.parse::<i64>().ok());
    value.is_some_and(|seconds| seconds != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_neither_a_panic_nor_a_hang_is_named() {
        for (arguments, is_watched, words) in [
            ("root=LABEL=root panic=10", true, &[][..]),
            ("panic=-1", true, &[]),
            ("panic=0 panic", true, &["panic="]),
            ("quiet panic_on_oops=1", false, &["panic=", "RuntimeWatchdogSec="]),
            ("panic=5", false, &["RuntimeWatchdogSec="]),
        ] {
            let found = waits_for_a_person(&KernelArguments::parse(arguments), is_watched);
            assert_eq!(found.len(), words.len(), "{arguments}: {found:?}");
            assert!(found.iter().zip(words).all(|(said, word)| said.contains(word)), "{found:?}");
        }
    }
}
