use super::*;

const ID: &str = "20261201-1";
const COMMIT: &str = "c0";

fn record(id: Option<&str>, commit: Option<&str>) -> Applied {
    Applied {
        deployment_id: id.map(str::to_owned),
        deployment_commit: commit.map(str::to_owned),
        ..Applied::default()
    }
}

/// Records that a root may hold: of this deployment, of one before it, made by hand.
fn records() -> Vec<(&'static str, Option<Applied>)> {
    vec![
        ("none", None),
        ("this id, this commit", Some(record(Some(ID), Some(COMMIT)))),
        ("this id, another commit", Some(record(Some(ID), Some("c1")))),
        ("another id, this commit", Some(record(Some("20261130-9"), Some(COMMIT)))),
        ("another id, another commit", Some(record(Some("20261130-9"), Some("c1")))),
        ("no id, this commit", Some(record(None, Some(COMMIT)))),
        ("no id, another commit", Some(record(None, Some("c1")))),
        ("neither", Some(record(None, None))),
    ]
}

/// The rules of the design, written the other way round: each line says when it is so.
fn expected(seen: &Seen<'_>) -> Belongs {
    let etc = seen.etc;
    if !seen.is_deployment {
        return if etc.is_some() {
            Belongs::Record
        } else if seen.etc_damaged && seen.var.is_some() {
            Belongs::VarRecord
        } else if seen.etc_damaged || seen.var.is_some() {
            Belongs::Unknown
        } else {
            Belongs::Nothing
        };
    }
    let by_id = |r: &Applied| seen.id.is_some() && r.deployment_id.as_deref() == seen.id;
    let by_commit = |r: &Applied| {
        seen.id.is_none() && seen.commit.is_some() && r.deployment_commit.as_deref() == seen.commit
    };
    let is_this = |r: &Applied| by_id(r) || by_commit(r);
    if etc.is_some_and(is_this) {
        Belongs::Record
    } else if seen.etc_damaged && seen.var.is_some_and(is_this) {
        Belongs::VarRecord
    } else if seen.manifest.is_some() {
        Belongs::Commit
    } else if seen.manifest_damaged || seen.commit.is_none() {
        Belongs::Unknown
    } else if etc.is_some() {
        Belongs::Stranger
    } else if seen.etc_damaged {
        Belongs::Unknown
    } else {
        Belongs::Nothing
    }
}

#[test]
fn every_combination() {
    let (manifest, all) = (Manifest::default(), records());
    let mut seen_outcomes = Vec::new();
    for is_deployment in [false, true] {
        for id in [None, Some(ID)] {
            for commit in [None, Some(COMMIT)] {
                for (has_manifest, manifest_damaged) in [(false, false), (false, true), (true, false)] {
                    for (name, etc) in &all {
                        for etc_damaged in [false, true] {
                            if etc_damaged && etc.is_some() {
                                continue;
                            }
                            for (var_name, var) in &all {
                                let seen = Seen {
                                    is_deployment,
                                    id,
                                    commit,
                                    manifest: has_manifest.then_some(&manifest),
                                    manifest_damaged,
                                    etc: etc.as_ref(),
                                    etc_damaged,
                                    var: var.as_ref(),
                                };
                                let is = belongs(&seen);
                                assert_eq!(is, expected(&seen), "{seen:?}: /etc {name}, /var {var_name}");
                                if !seen_outcomes.contains(&is) {
                                    seen_outcomes.push(is);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seen_outcomes.len(), 6, "each outcome is reached");
}

/// The stories of the design, one line each.
#[test]
fn stories() {
    let manifest = Manifest::default();
    let here = Seen { is_deployment: true, commit: Some(COMMIT), ..Seen::default() };
    let of_this = record(Some(ID), Some(COMMIT));
    let moved_on = Applied { commit: Some("c2".to_owned()), ..record(Some(ID), Some(COMMIT)) };
    let before = record(Some("20261130-9"), Some("c1"));
    let ours = Seen { id: Some(ID), manifest: Some(&manifest), ..here };
    for (story, seen, belongs_there) in [
        (
            "first boot after a commit, /etc merged from before",
            Seen { etc: Some(&before), ..ours },
            Belongs::Commit,
        ),
        ("first boot, no record yet", ours, Belongs::Commit),
        ("second boot", Seen { etc: Some(&of_this), ..ours }, Belongs::Record),
        ("after a live apply", Seen { etc: Some(&moved_on), ..ours }, Belongs::Record),
        (
            "`rpm-ostree kargs` copies the origin and deploys the same commit",
            Seen { etc: Some(&moved_on), ..ours },
            Belongs::Record,
        ),
        (
            "a tool that drops our keys deploys the same commit",
            Seen { id: None, etc: Some(&moved_on), ..ours },
            Belongs::Record,
        ),
        (
            "`ostree admin deploy` of a bare commit on top",
            Seen { etc: Some(&before), ..here },
            Belongs::Stranger,
        ),
        ("rolled back to a deployment from before mcd", here, Belongs::Nothing),
        (
            "rolled back to a deployment from before mcd, /var has a record",
            Seen { var: Some(&of_this), ..here },
            Belongs::Nothing,
        ),
        ("the record is damaged", Seen { etc_damaged: true, ..ours }, Belongs::Commit),
        (
            "the record is damaged after a live apply",
            Seen { etc_damaged: true, var: Some(&moved_on), ..ours },
            Belongs::VarRecord,
        ),
        ("the record of a stranger is damaged", Seen { etc_damaged: true, ..here }, Belongs::Unknown),
    ] {
        assert_eq!(belongs(&seen), belongs_there, "{story}");
    }
}
