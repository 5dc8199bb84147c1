//! Which era a message belongs to on a duplex wire, and what a request is refused for.

use bowline_types::{ErrorCode, LoggingLevel, meta_key};

use super::*;

#[test]
fn a_request_with_a_modern_envelope_is_modern_whatever_happened_before() {
    for mut door in [door(), opened_at("2025-11-25"), opened_at("2024-11-05")] {
        let (request, seal) = request_in(
            door.admit(raw("tools/list", json!({"_meta": envelope()})))
                .unwrap(),
        );

        assert_eq!(request.caller.dialect, Dialect::LATEST);
        assert_eq!(seal.dialect, Dialect::LATEST);
    }
}

/// BASE-18: "Derive version, capabilities or identity from earlier requests on the same connection": a
/// server MUST NOT.
#[test]
fn a_modern_request_takes_nothing_from_what_is_remembered() {
    let mut door = opened_at("2025-11-25");
    door.admit(raw("logging/setLevel", json!({"level": "error"})))
        .unwrap();
    let meta = envelope_with(meta_key::CLIENT_INFO, None);

    let (request, _) = request_in(
        door.admit(raw("tools/list", json!({"_meta": meta})))
            .unwrap(),
    );

    assert_eq!(*request.caller, Caller::new(Dialect::LATEST));
}

#[test]
fn a_modern_request_does_not_close_the_legacy_conversation() {
    let mut door = opened_at("2025-06-18");
    door.admit(raw("tools/list", json!({"_meta": envelope()})))
        .unwrap();

    let (request, _) = request_in(door.admit(raw("tools/list", json!({}))).unwrap());

    assert_eq!(request.caller.dialect.version, "2025-06-18");
}

/// A client may find no shared modern version and shake hands after all.
#[test]
fn discovery_does_not_lock_out_a_later_handshake() {
    let mut door = door();
    door.admit(raw("server/discover", json!({"_meta": envelope()})))
        .unwrap();

    let (request, _) = request_in(door.admit(initialize("2025-11-25")).unwrap());

    assert_eq!(request.caller.dialect.version, "2025-11-25");
}

#[test]
fn ping_is_answered_even_before_the_handshake() {
    for mut door in [door(), opened_at("2025-03-26")] {
        let answer = door.admit(raw("ping", json!({}))).unwrap();

        assert_eq!(answer, Admitted::Answer(Json::empty_object()));
    }
}

/// META-9: "Reject a request lacking a required `_meta` field with `-32602`".
#[test]
fn any_other_request_before_the_handshake_is_told_what_it_lacks() {
    for method in [
        "tools/list",
        "server/discover",
        "logging/setLevel",
        "own/method",
    ] {
        for params in [json!({}), json!({"_meta": {}}), json!({"_meta": null})] {
            let rejection = door().admit(raw(method, params)).unwrap_err();

            assert_eq!(rejection.code(), ErrorCode::INVALID_PARAMS, "{method}");
            let message = &rejection.error().message;
            assert!(message.contains(meta_key::PROTOCOL_VERSION), "{message}");
            assert!(message.contains("2026-07-28"), "{message}");
        }
    }
}

#[test]
fn a_legacy_request_has_the_caller_that_shook_hands() {
    for dialect in Dialects::legacy().iter() {
        let mut door = opened_at(dialect.version);

        let call = raw(
            "tools/call",
            json!({"name": "a", "_meta": {"progressToken": 7, "x": 1}}),
        );
        let (request, seal) = request_in(door.admit(call).unwrap());

        let caller = &request.caller;
        assert_eq!(caller.dialect, dialect);
        assert_eq!(caller.implementation, Some(Implementation::new("c", "1")));
        assert!(caller.capabilities.roots.is_some());
        assert_eq!(request.progress_token, Some(7.into()));
        assert_eq!(value(&request.params)["_meta"]["x"], 1);
        assert_eq!(seal, Seal::new(dialect, "tools/call"));
    }
}

#[test]
fn a_legacy_request_without_params_has_empty_ones_inside() {
    let mut door = opened_at("2025-11-25");
    let bare = RawRequest {
        params: None,
        ..raw("tools/list", json!({}))
    };

    let (request, _) = request_in(door.admit(bare).unwrap());

    assert_eq!(request.params, Json::empty_object());
}

/// LINI-3: "Same version if supported, else another it supports (SHOULD be its latest) — a normal result,
/// not an error"; LINI-11: "must never offer or accept `2026-07-28` through `initialize`".
#[test]
fn the_handshake_settles_on_the_offered_version_or_on_our_latest() {
    let table = [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        ("1.0", "2025-11-25"),
        ("", "2025-11-25"),
    ];
    for (offered, settled) in table {
        let mut door = door();

        let (request, seal) = request_in(door.admit(initialize(offered)).unwrap());
        let discovery = json!({
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "instructions": "ask", "resultType": "complete", "ttlMs": 5, "cacheScope": "public",
        });
        let answer = super::seal(&seal, &server(), Ok(discovery.into())).unwrap();

        assert_eq!(request.method, "server/discover");
        assert_eq!(request.params, Json::empty_object());
        assert_eq!(
            value(&answer),
            json!({
                "protocolVersion": settled, "capabilities": {"tools": {}}, "instructions": "ask",
                "serverInfo": {"name": "s", "version": "2"},
            }),
            "{offered}"
        );
    }
}

#[test]
fn a_server_of_few_versions_settles_on_its_own_latest() {
    let served = Dialects::only(|row| row.elicitation == ElicitationModes::Form);
    let mut door = Door::new(served, Offers::default());

    let (request, _) = request_in(door.admit(initialize("2025-11-25")).unwrap());

    assert_eq!(request.caller.dialect.version, "2025-06-18");
}

#[test]
fn an_ill_formed_handshake_opens_nothing() {
    let table = [
        json!({}),
        json!({"capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
        json!({"protocolVersion": 1, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
        json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "c", "version": "1"}}),
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}),
        json!({"protocolVersion": "2025-11-25", "capabilities": {}}),
    ];
    for params in table {
        let mut door = door();

        let rejection = door.admit(raw("initialize", params.clone())).unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::INVALID_PARAMS, "{params}");
        assert!(matches!(door.era(), Era::Modern), "{params}");
    }
}

#[test]
fn another_handshake_replaces_the_first_until_the_client_does_something_else() {
    let mut door = door();
    door.admit(initialize("2024-11-05")).unwrap();

    let (early, _) = request_in(door.admit(initialize("2025-03-26")).unwrap());
    door.hear(&initialized());
    door.admit(raw("ping", json!({}))).unwrap();
    let (again, _) = request_in(door.admit(initialize("2025-06-18")).unwrap());
    let heard = door.hear(&initialized());
    let (request, _) = request_in(door.admit(raw("tools/list", json!({}))).unwrap());
    let late = door.admit(initialize("2025-11-25")).unwrap_err();
    let (next, _) = request_in(door.admit(raw("tools/list", json!({}))).unwrap());

    assert_eq!(early.caller.dialect.version, "2025-03-26");
    assert_eq!(again.caller.dialect.version, "2025-06-18");
    assert_eq!(heard, Heard::Initialized, "of the new handshake");
    assert_eq!(request.caller.dialect.version, "2025-06-18");
    assert_eq!(late.code(), ErrorCode::INVALID_REQUEST);
    assert_eq!(next.caller.dialect.version, "2025-06-18");
}

#[test]
fn what_a_ready_client_does_makes_its_handshake_final() {
    type Act = fn(&mut Door);
    let acts: [(&str, Act); 4] = [
        ("a request before it was ready", |door| {
            door.admit(raw("tools/list", json!({}))).unwrap();
            door.hear(&initialized());
        }),
        ("a request that is refused", |door| {
            door.hear(&initialized());
            door.admit(raw("resources/subscribe", json!({})))
                .unwrap_err();
        }),
        ("a log level", |door| {
            door.hear(&initialized());
            let level = raw("logging/setLevel", json!({"level": "error"}));
            door.admit(level).unwrap();
        }),
        ("a notification", |door| {
            door.hear(&initialized());
            door.hear(&Notification::new("notifications/roots/list_changed", None));
        }),
    ];
    for (what, act) in acts {
        let mut door = door();
        door.admit(initialize("2025-06-18")).unwrap();
        act(&mut door);

        let late = door.admit(initialize("2025-11-25")).unwrap_err();

        assert_eq!(late.code(), ErrorCode::INVALID_REQUEST, "{what}");
    }
    // An ill-formed handshake replaces nothing.
    let mut door = opened_at("2025-06-18");
    door.admit(raw("initialize", json!({}))).unwrap_err();
    assert_eq!(door.hear(&initialized()), Heard::Nothing);
    let (request, _) = request_in(door.admit(raw("tools/list", json!({}))).unwrap());
    assert_eq!(request.caller.dialect.version, "2025-06-18");
}

/// A body that names a modern version outranks the method's name.
#[test]
fn initialize_with_a_modern_envelope_is_no_handshake() {
    for (mut door, opened) in [(door(), false), (opened_at("2025-11-25"), true)] {
        let mut handshake = initialize("2025-11-25");
        let mut params = value(&handshake.params.unwrap());
        params["_meta"] = envelope();
        handshake.params = Some(params.into());

        let rejection = door.admit(handshake).unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::METHOD_NOT_FOUND);
        assert_eq!(matches!(door.era(), Era::Legacy(_)), opened);
    }
}

/// COMPAT-5: a modern-only server SHOULD "name its supported versions in whatever error it returns to
/// `initialize`".
#[test]
fn a_modern_only_server_tells_a_legacy_client_what_it_speaks() {
    let mut door = Door::new(Dialects::modern(), Offers::default());

    let rejection = door.admit(initialize("2025-11-25")).unwrap_err();
    let ping = door.admit(raw("ping", json!({}))).unwrap_err();

    assert_eq!(rejection.code(), ErrorCode::UNSUPPORTED_PROTOCOL_VERSION);
    assert_eq!(
        value(rejection.error().data.as_ref().unwrap()),
        json!({"supported": ["2026-07-28"], "requested": "2025-11-25"})
    );
    assert_eq!(ping.code(), ErrorCode::INVALID_PARAMS);
}

#[test]
fn a_legacy_only_server_knows_no_modern_version() {
    let mut door = Door::new(Dialects::legacy(), Offers::default());

    let rejection = door
        .admit(raw("tools/list", json!({"_meta": envelope()})))
        .unwrap_err();

    assert_eq!(rejection.code(), ErrorCode::UNSUPPORTED_PROTOCOL_VERSION);
}

#[test]
fn methods_of_the_other_era_do_not_exist() {
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    ] {
        let rejection = door()
            .admit(raw(method, json!({"_meta": envelope()})))
            .unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::METHOD_NOT_FOUND, "{method}");
    }
    for method in ["server/discover", "subscriptions/listen", "tasks/update"] {
        let rejection = opened_at("2025-11-25")
            .admit(raw(method, json!({})))
            .unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::METHOD_NOT_FOUND, "{method}");
    }
    let own = opened_at("2025-11-25").admit(raw("own/method", json!({})));
    assert!(own.is_ok());
}

/// LUTIL-2: "`logging/setLevel {level}`; server then filters […]; without setLevel the server picks".
#[test]
fn a_legacy_log_level_is_everything_until_it_is_set_and_then_remembered() {
    let mut door = opened_at("2025-11-25");
    let level = |door: &mut Door| {
        let (request, _) = request_in(door.admit(raw("tools/list", json!({}))).unwrap());
        request.caller.log_level
    };

    let before = level(&mut door);
    let answer = door
        .admit(raw("logging/setLevel", json!({"level": "warning"})))
        .unwrap();
    let after = level(&mut door);
    let bad = door
        .admit(raw("logging/setLevel", json!({"level": "loud"})))
        .unwrap_err();

    assert_eq!(before, Some(LoggingLevel::Debug));
    assert_eq!(answer, Admitted::Answer(Json::empty_object()));
    assert_eq!(after, Some(LoggingLevel::Warning));
    assert_eq!(bad.code(), ErrorCode::INVALID_PARAMS);
    assert_eq!(level(&mut door), Some(LoggingLevel::Warning));
}

#[test]
fn legacy_resource_subscriptions_become_watches() {
    let mut door = opened_at("2025-11-25");

    let watch = door.admit(raw("resources/subscribe", json!({"uri": "file:///a"})));
    let unwatch = door.admit(raw("resources/unsubscribe", json!({"uri": "file:///a"})));
    let bad = door.admit(raw("resources/subscribe", json!({})));

    assert_eq!(watch.unwrap(), Admitted::Watch("file:///a".into()));
    assert_eq!(unwatch.unwrap(), Admitted::Unwatch("file:///a".into()));
    assert_eq!(bad.unwrap_err().code(), ErrorCode::INVALID_PARAMS);
}

/// ERR-7: "-32601 covers both unknown methods and methods behind a capability the server did not
/// advertise".
#[test]
fn what_is_not_offered_does_not_exist() {
    let mut door = Door::new(Dialects::all(), Offers::default());
    door.admit(initialize("2025-11-25")).unwrap();

    for (method, params) in [
        ("logging/setLevel", json!({"level": "info"})),
        ("resources/subscribe", json!({"uri": "a:b"})),
        ("resources/unsubscribe", json!({"uri": "a:b"})),
    ] {
        let rejection = door.admit(raw(method, params)).unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::METHOD_NOT_FOUND, "{method}");
    }
}

#[test]
fn an_offer_is_read_from_the_capabilities() {
    let capabilities = Json::from(json!({"logging": {}, "resources": {"subscribe": true}}));
    let offers = Offers::from(&capabilities.decode().unwrap());
    let none = Offers::from(&Json::from(json!({"resources": {}})).decode().unwrap());

    assert!(offers.logging && offers.subscriptions);
    assert_eq!(none, Offers::default());
}

#[test]
fn legacy_notifications_mean_something_only_in_a_legacy_conversation() {
    let roots = Notification::new("notifications/roots/list_changed", None);
    let other = Notification::new("notifications/own", None);

    let mut strange = door();
    assert_eq!(strange.hear(&initialized()), Heard::Nothing);
    assert_eq!(strange.hear(&roots), Heard::Nothing);
    assert_eq!(strange.hear(&other), Heard::Other);

    let mut known = door();
    known.admit(initialize("2025-11-25")).unwrap();
    assert_eq!(known.hear(&initialized()), Heard::Initialized);
    assert_eq!(known.hear(&initialized()), Heard::Nothing);
    assert_eq!(known.hear(&roots), Heard::RootsListChanged);
    assert_eq!(known.hear(&other), Heard::Other);
}

#[test]
fn unsolicited_messages_wait_until_a_legacy_client_is_ready() {
    let ready = |door: &Door| match door.era() {
        Era::Modern => None,
        Era::Legacy(opened) => Some(opened.is_ready()),
    };
    let mut door = door();

    assert_eq!(ready(&door), None);
    door.admit(initialize("2025-11-25")).unwrap();
    assert_eq!(ready(&door), Some(false));
    door.hear(&initialized());
    assert_eq!(ready(&door), Some(true));
}
