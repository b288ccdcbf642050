//! What the order of a sysroot's deployments means, and what a change makes of it.
//!
//! The first deployment is what the next boot starts. A new one is put before all others; those that
//! nothing protects are dropped from the list in the same switch. What is kept here is what libostree
//! keeps when it finalises a staged deployment, so that both ways to deploy end alike.

use super::status::{DeploymentName, DeploymentStatus};

/// What becomes of the present deployments when a new one is put before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AfterDeploy {
    /// Still there, in their order.
    pub keep: Vec<DeploymentName>,
    /// Dropped from the boot order with the switch; their folders go with a later cleanup.
    pub dropped: Vec<DeploymentName>,
}

/// The deployment whose `/etc` and kernel arguments a new one starts from: the running one, else the
/// one that the next boot would start.
pub fn merge_source(deployments: &[DeploymentStatus]) -> Option<&DeploymentStatus> {
    deployments.iter().find(|deployment| deployment.booted).or_else(|| deployments.iter().find(|d| !d.staged))
}

/// Which deployments stay when a new one is deployed: the running one, the merge source, pinned ones,
/// the last good one, and those of other stateroots. A staged one is always replaced.
pub fn after_deploy(deployments: &[DeploymentStatus]) -> AfterDeploy {
    let source = merge_source(deployments);
    let stays = |deployment: &&DeploymentStatus| {
        let protected = deployment.booted || deployment.pinned || deployment.kept;
        let of_another = source.is_none_or(|source| source.stateroot != deployment.stateroot);
        !deployment.staged
            && (protected || of_another || source.is_some_and(|source| source.index == deployment.index))
    };
    let (keep, dropped) = deployments.iter().partition::<Vec<_>, _>(stays);
    let names =
        |list: Vec<&DeploymentStatus>| list.into_iter().map(|deployment| deployment.name.clone()).collect();
    AfterDeploy { keep: names(keep), dropped: names(dropped) }
}

/// What `mcd rollback` goes to when no deployment is named.
///
/// With something else than the running deployment up for the next boot, that is undone: back to the
/// running one. Else it is the deployment after the running one, of the same stateroot. In a sysroot
/// that does not run, it is the one after the first.
pub fn rollback_target(deployments: &[DeploymentStatus]) -> Option<&DeploymentStatus> {
    let next = deployments.first()?;
    let from = match deployments.iter().find(|deployment| deployment.booted) {
        Some(booted) if booted.index != next.index => return Some(booted),
        Some(booted) => booted,
        None => next,
    };
    deployments
        .iter()
        .find(|deployment| deployment.index > from.index && deployment.stateroot == from.stateroot)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One deployment per letter: `b` booted, `s` staged, `p` pinned, `k` kept, `o` of another
    /// stateroot, `-` none of these.
    fn order(kinds: &str) -> Vec<DeploymentStatus> {
        let one = |(index, kind): (usize, char)| DeploymentStatus {
            index,
            name: DeploymentName { checksum: format!("{index}").repeat(64), serial: 0 },
            stateroot: if kind == 'o' { "other" } else { "os" }.to_owned(),
            booted: kind == 'b',
            staged: kind == 's',
            rollback: false,
            pinned: kind == 'p',
            kept: kind == 'k',
            image: None,
            digest: None,
            asked_digest: None,
            image_commit: None,
            version: None,
            timestamp: 0,
            kernel_arguments: String::new(),
            id: None,
            other_origin: None,
            state: None,
            cause: None,
            config: None,
        };
        kinds.chars().enumerate().map(one).collect()
    }

    fn places(names: &[DeploymentName]) -> String {
        names.iter().map(|name| &name.checksum[..1]).collect()
    }

    #[test]
    fn a_new_deployment_drops_only_what_nothing_protects() {
        for (before, keep, dropped) in [
            ("", "", ""),
            ("-", "0", ""),
            ("--", "0", "1"),
            ("-k-", "01", "2"),
            ("b-", "0", "1"),
            ("sb-", "1", "02"),
            ("sbkp-", "123", "04"),
            ("-b", "1", "0"),
            ("bo-", "01", "2"),
            ("-o-", "01", "2"),
        ] {
            let after = after_deploy(&order(before));
            assert_eq!(
                (places(&after.keep), places(&after.dropped)),
                (keep.to_owned(), dropped.to_owned()),
                "{before}"
            );
        }
    }

    #[test]
    fn rollback_undoes_what_waits_else_goes_to_the_one_before() {
        for (order_of, target) in [
            ("", None),
            ("-", None),
            ("b", None),
            ("--", Some(1)),
            ("b-", Some(1)),
            ("sb-", Some(1)),
            ("-b", Some(1)),
            ("-b-", Some(1)),
            ("bo", None),
            ("bo-", Some(2)),
        ] {
            let found = rollback_target(&order(order_of)).map(|deployment| deployment.index);
            assert_eq!(found, target, "{order_of}");
        }
    }
}
