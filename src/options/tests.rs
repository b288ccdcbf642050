use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}

fn request(line: &str) -> Request {
    match parse(words(line)) {
        Ok(invocation) => invocation.request,
        Err(stop) => panic!("{line}: {stop:?}"),
    }
}

fn pivot_of(line: &str) -> PivotOptions {
    match request(line) {
        Request::Pivot(options) => options,
        other => panic!("{line}: {other:?}"),
    }
}

fn fault(line: &str) -> Fault {
    match parse(words(line)) {
        Err(Stop::Fault(fault)) => fault,
        other => panic!("{line}: {other:?}"),
    }
}

fn usage_error(line: &str) -> clap::Error {
    match parse(words(line)) {
        Err(Stop::Clap(error)) => error,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn a_reboot_is_never_asked_for_by_itself() {
    for (line, expected) in [
        ("mcd pivot registry.example/os:1", Reboot::Never),
        ("mcd pivot registry.example/os:1 --reboot", Reboot::Auto),
        ("mcd pivot -r registry.example/os:1", Reboot::Auto),
        ("mcd pivot --reboot registry.example/os:1", Reboot::Auto),
        ("mcd pivot --reboot=full registry.example/os:1", Reboot::Full),
        ("mcd pivot --reboot=never registry.example/os:1", Reboot::Never),
    ] {
        let options = pivot_of(line);
        assert_eq!(options.reboot, expected, "{line}");
        assert!(matches!(options.asked, Asked::Image(_)), "{line}: the image was taken for a value");
    }
}

#[test]
fn a_reboot_may_be_soft() {
    assert_eq!(pivot_of("mcd pivot registry.example/os:1 --reboot=soft").reboot, Reboot::Soft);
}

#[test]
fn what_a_pivot_goes_to() {
    assert_eq!(pivot_of("mcd pivot").asked, Asked::HostApi);
    assert_eq!(pivot_of("mcd pivot --resume").asked, Asked::Resume(None));
    assert_eq!(pivot_of("mcd pivot --resume=abc").asked, Asked::Resume(Some("abc".to_owned())));
    assert!(pivot_of("mcd pivot registry.example/os:1 --until prepared").until_prepared);
    for line in [
        "mcd pivot registry.example/os:1 --resume",
        "mcd pivot --resume --karg-append=quiet",
        "mcd pivot --resume --until prepared",
        "mcd pivot --resume --dry-run",
        "mcd pivot --until committed",
    ] {
        assert_eq!(usage_error(line).exit_code(), 2, "{line}");
    }
}

#[test]
fn a_malformed_image_is_a_usage_error_that_quotes_it() {
    let words = ["mcd", "pivot", "registry.example/os :1"].map(OsString::from);
    let Err(Stop::Fault(fault)) = parse(words) else { panic!("accepted") };
    assert_eq!(fault.kind, ExitKind::Usage);
    assert!(fault.what.contains("registry.example/os :1"), "{}", fault.what);
}

#[test]
fn kernel_argument_flags_keep_their_order() {
    let line = "mcd pivot registry.example/os:1 --karg-append=b=2 --karg-delete a --karg-append a=\"1\" --karg-replace k=n";
    let edits = ["a"].map(|it| KargEdit::Delete(it.to_owned())).into_iter();
    let edits = edits.chain([KargEdit::Replace("k=n".to_owned())]);
    let edits = edits.chain(["b=2", "a=\"1\""].map(|it| KargEdit::Append(it.to_owned())));
    assert_eq!(pivot_of(line).kargs, edits.collect::<Vec<_>>());
}

#[test]
fn a_malformed_kernel_argument_is_a_usage_error_that_quotes_it() {
    for argument in ["ostree=/boot/other", "a=\"open"] {
        let fault = fault(&format!("mcd pivot registry.example/os:1 --karg-append={argument}"));
        assert_eq!(fault.kind, ExitKind::Usage, "{argument}");
        assert!(fault.what.contains(argument), "{}", fault.what);
    }
    for edit in ["--karg-replace=ostree=/x", "--karg-replace==x", "--karg-delete=ostree"] {
        assert_eq!(fault(&format!("mcd pivot registry.example/os:1 {edit}")).kind, ExitKind::Usage, "{edit}");
    }
}

#[test]
fn a_history_of_nothing_is_a_usage_error() {
    assert_eq!(fault("mcd history -n 0").kind, ExitKind::Usage);
}

#[test]
fn rates() {
    for (text, expected) in [("1", 1), ("500K", 500 << 10), ("10m", 10 << 20), ("2G", 2 << 30)] {
        assert_eq!(parse_rate(text).unwrap(), expected, "{text}");
    }
    for text in ["", "K", "0", "0M", "-1", "1.5M", "10MB", "99999999999999999999", "99999999999G", "é"] {
        assert_eq!(parse_rate(text).unwrap_err().kind, ExitKind::Usage, "{text}");
    }
}

#[test]
fn deployments_by_every_name() {
    let csum = "a".repeat(64);
    for (text, expected) in [
        ("0", Which::Index(0)),
        ("12", Which::Index(12)),
        ("booted", Which::Booted),
        ("rollback", Which::Rollback),
        ("123456", Which::Checksum("123456".to_owned())),
        (&format!("{csum}.1"), Which::Name(DeploymentName { checksum: csum.clone(), serial: 1 })),
        (&csum, Which::Checksum(csum.clone())),
    ] {
        let which = parse_which(text).unwrap();
        assert_eq!(which, expected);
        assert_eq!(which.to_string(), text, "it is quoted as it was typed");
    }
    for text in ["", "-1", "abc", "xyz123", "ABCDEF", &format!("{csum}.x"), &format!("{csum}0")] {
        assert_eq!(parse_which(text).unwrap_err().kind, ExitKind::Usage, "{text}");
    }
}

#[test]
fn a_name_is_resolved_to_exactly_one_deployment() {
    let status = crate::ui::samples::staged_over_booted();
    let index = |which: &str| parse_which(which).unwrap().resolve(&status).map(|one| one.index);
    assert_eq!(index("booted"), Ok(1));
    assert_eq!(index("rollback"), Ok(2));
    assert_eq!(index("2"), Ok(2));
    assert_eq!(index("111111"), Ok(0));
    assert_eq!(index("7").unwrap_err().kind, ExitKind::Usage);
    assert_eq!(index("ffffff").unwrap_err().kind, ExitKind::Usage);
    let two = index("22222222").unwrap_err();
    assert!(two.what.contains("2 deployments"), "{}", two.what);
}

#[test]
fn the_old_daemon_keeps_its_pivot() {
    let options = pivot_of("/usr/libexec/machine-config-daemon pivot -k -r registry.example/os:1");
    assert!(matches!(options.asked, Asked::Image(_)));
    assert_eq!(options.reboot, Reboot::Full);
    assert_eq!(pivot_of("machine-config-daemon pivot").asked, Asked::HostApi);
    assert_eq!(pivot_of("machine-config-daemon pivot -P").asked, Asked::HostApi);
    assert_eq!(
        pivot_of("machine-config-daemon pivot --from-etc-pullspec registry.example/os:1").asked,
        Asked::HostApi
    );
    assert_eq!(pivot_of("machine-config-daemon pivot --keep --logtostderr=true -v 4").reboot, Reboot::Never);
    assert_eq!(usage_error("machine-config-daemon pivot --unchanged-exit-77").exit_code(), 2);
}

#[test]
fn the_old_daemon_refuses_what_is_not_here() {
    let line = "machine-config-daemon start --node-name x --once-from=/x";
    assert_eq!(fault(line).kind, ExitKind::Refused, "{line}");
    assert_eq!(usage_error("machine-config-daemon status").exit_code(), 2);
    let Request::Version(line) = request("machine-config-daemon version") else { panic!("no version") };
    assert!(line.starts_with("MachineConfigDaemon "), "{line}");
}

#[test]
fn a_first_boot_has_three_spellings() {
    let Request::Firstboot(ours) = request("mcd firstboot") else { panic!("no first boot") };
    assert_eq!((ours.reboot, ours.retries, &ours.file), (Reboot::Auto, true, &None));
    let Request::Firstboot(once) = request("mcd firstboot-complete-machineconfig --once --reboot=never")
    else {
        panic!("no first boot")
    };
    assert_eq!((once.reboot, once.retries), (Reboot::Never, false));
    let line =
        "machine-config-daemon firstboot-complete-machineconfig --machineconfig-file /x --persist-nics";
    let Request::Firstboot(old) = request(line) else { panic!("no first boot") };
    assert_eq!((old.reboot, old.retries, old.force), (Reboot::Full, true, false));
    assert_eq!(old.file.as_deref(), Some(std::path::Path::new("/x")));
    assert!(old.remarks[0].contains("--persist-nics has no effect"), "{:?}", old.remarks);
}

#[test]
fn the_stand_alone_pivot_keeps_its_flags() {
    let options = pivot_of("/usr/bin/pivot --unchanged-exit-77 -k -r registry.example/os:1");
    assert!(options.unchanged_exit_77);
    assert_eq!(options.reboot, Reboot::Full);
    assert_eq!(pivot_of("pivot").asked, Asked::HostApi);
    assert_eq!(usage_error("pivot one two").exit_code(), 2);
}

#[test]
fn the_old_daemon_starts_with_its_flags() {
    let line = "machine-config-daemon start --node-name=worker-0 --root-mount=/rootfs --payload-version=4.18 -v 2 --metrics-url=127.0.0.1:0";
    let Request::Daemon(options) = request(line) else { panic!("no daemon") };
    assert_eq!((options.node.as_str(), options.drains_itself, options.self_heal), ("worker-0", false, false));
    assert_eq!(options.listen.to_string(), "127.0.0.1:0");
    let Request::Daemon(options) = request("mcd daemon --node-name=w --drain=self --self-heal") else {
        panic!()
    };
    assert_eq!((options.drains_itself, options.self_heal), (true, true));
    assert_eq!(fault("mcd daemon --node-name=../x").kind, ExitKind::Usage);
}

#[test]
fn the_controller_has_a_namespace() {
    let Request::Controller(options) = request("mcd controller --kubeconfig=/k") else { panic!() };
    assert_eq!((options.namespace.as_str(), options.kubeconfig), ("mcd", Some("/k".into())));
    for wrong in ["", "../x", "A"] {
        assert_eq!(fault(&format!("mcd controller --namespace={wrong}")).kind, ExitKind::Usage, "{wrong}");
    }
}
