use super::*;

fn prepare() -> HostRequest {
    HostRequest {
        version: WIRE_VERSION,
        id: "prepare-1".to_owned(),
        who: "daemon".to_owned(),
        force: false,
        verb: Verb::Prepare(Wanted {
            machine_config: "{}".to_owned(),
            name: "rendered-worker-1".to_owned(),
            image: None,
            source: SOURCE_MACHINE_CONFIG.to_owned(),
        }),
    }
}

/// Hosts of every later version must be able to read this line.
#[test]
fn move_to_image_never_changes() {
    let request = HostRequest {
        version: 1,
        id: "move-1".to_owned(),
        who: "daemon".to_owned(),
        force: true,
        verb: Verb::MoveToImage { image: "registry.test/os:1".to_owned(), reboot: true },
    };
    let text = r#"{"version":1,"id":"move-1","who":"daemon","force":true,"verb":"move-to-image","image":"registry.test/os:1","reboot":true}"#;
    assert_eq!(serde_json::to_string(&request).unwrap(), text);
    assert_eq!(serde_json::from_str::<HostRequest>(text).unwrap(), request);
}

#[test]
fn a_request_reads_back() {
    let text = serde_json::to_string(&prepare()).unwrap();
    assert_eq!(serde_json::from_str::<HostRequest>(&text).unwrap(), prepare());
}

#[test]
fn a_newer_pods_words_are_no_error() {
    let request: HostRequest =
        serde_json::from_str(r#"{"version":7,"id":"x","verb":"defragment","depth":3,"colour":"red"}"#)
            .unwrap();
    assert_eq!(request.verb, Verb::Unknown);
    let reply: Reply = serde_json::from_str(r#"{"seq":4,"kind":"weather","rain":true}"#).unwrap();
    assert_eq!(reply, Reply { seq: 4, body: ReplyBody::Unknown });
    let done: Reply =
        serde_json::from_str(r#"{"seq":5,"kind":"done","outcome":"levitated","new":1}"#).unwrap();
    let ReplyBody::Done(done) = done.body else { panic!("{done:?}") };
    assert_eq!(done.outcome, Outcome::Unknown);
}

#[test]
fn an_older_hosts_report_has_defaults() {
    let report: HostReport = serde_json::from_str(r#"{"boot_id":"b"}"#).unwrap();
    assert_eq!(report, HostReport { boot_id: "b".to_owned(), ..HostReport::default() });
}

#[test]
fn a_fault_becomes_one_line() {
    let fault = Fault::refused("file /etc/x").why("the path is reserved").next("take it out");
    let failed = Failed::from(&fault);
    assert!(failed.is_refused());
    assert_eq!(failed.line(), "file /etc/x: the path is reserved; take it out");
}

/// What a pod and a host of protocol 1 say to each other. These lines never change; a later protocol gets
/// lines of its own, and pods go on to write these for hosts that speak no more.
#[test]
fn the_conversation_of_protocol_1_is_read_and_written_as_ever() {
    let text = include_str!("../../../tests/fixtures/records/wire-v1.jsonl");
    let mut verbs = Vec::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let (kind, said) = line.as_object().unwrap().iter().next().unwrap();
        let again = if kind == "request" {
            let request: HostRequest = serde_json::from_value(said.clone()).unwrap();
            assert_ne!(request.verb, Verb::Unknown, "{said}");
            verbs.push(RunningRequest::from(&request).verb);
            serde_json::to_value(request)
        } else {
            let reply: Reply = serde_json::from_value(said.clone()).unwrap();
            assert_ne!(reply.body, ReplyBody::Unknown, "{said}");
            serde_json::to_value(reply)
        };
        assert_eq!(again.unwrap(), *said);
    }
    let all = [
        "prepare",
        "commit",
        "apply-live",
        "verify",
        "status",
        "move-to-image",
        "reboot",
        "cancel",
        "take-over",
    ];
    assert_eq!(verbs, all);
}
