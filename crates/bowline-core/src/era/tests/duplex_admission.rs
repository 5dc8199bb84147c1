//! Tests of the era of messages on a duplex wire, and of rejections.

use bowline_types::{ErrorCode, LoggingLevel, meta_key};

use super::*;

#[test]
fn a_request_with_a_modern_envelope_is_modern_in_every_state() {
    for mut admission in [
        admission(),
        initialized_at("2025-11-25"),
        initialized_at("2024-11-05"),
    ] {
        let (request, seal) = request_in(
            admission
                .admit(raw("tools/list", json!({"_meta": envelope()})))
                .unwrap(),
        );

        assert_eq!(request.caller.dialect, Dialect::LATEST);
        assert_eq!(seal.dialect, Dialect::LATEST);
    }
}

/// BASE-18: "Derive version, capabilities or identity from earlier requests on the same connection": a
/// server MUST NOT.
#[test]
fn a_modern_request_inherits_nothing_from_the_legacy_state() {
    let mut admission = initialized_at("2025-11-25");
    admission
        .admit(raw("logging/setLevel", json!({"level": "error"})))
        .unwrap();
    let meta = envelope_with(meta_key::CLIENT_INFO, None);

    let (request, _) = request_in(
        admission
            .admit(raw("tools/list", json!({"_meta": meta})))
            .unwrap(),
    );

    assert_eq!(*request.caller, Caller::new(Dialect::LATEST));
}

#[test]
fn a_modern_request_does_not_end_the_legacy_era() {
    let mut admission = initialized_at("2025-06-18");
    admission
        .admit(raw("tools/list", json!({"_meta": envelope()})))
        .unwrap();

    let (request, _) = request_in(admission.admit(raw("tools/list", json!({}))).unwrap());

    assert_eq!(request.caller.dialect.version, "2025-06-18");
}

/// A client that finds no shared modern version may still send `initialize`.
#[test]
fn initialize_is_admitted_after_discovery() {
    let mut admission = admission();
    admission
        .admit(raw("server/discover", json!({"_meta": envelope()})))
        .unwrap();

    let (request, _) = request_in(admission.admit(initialize("2025-11-25")).unwrap());

    assert_eq!(request.caller.dialect.version, "2025-11-25");
}

#[test]
fn initialize_becomes_a_discovery_with_its_meta_only() {
    let mut opening = initialize("2025-11-25");
    let mut params = opening.params.unwrap().decode::<Value>().unwrap();
    params["_meta"] = json!({"progressToken": 7, "x": 1});
    opening.params = Some(params.into());

    let (request, _) = request_in(admission().admit(opening).unwrap());

    assert_eq!(request.method, "server/discover");
    let params = request.params.decode::<Value>().unwrap();
    assert_eq!(params, json!({"_meta": {"progressToken": 7, "x": 1}}));
    assert_eq!(request.progress_token, Some(7.into()));
}

#[test]
fn ping_is_answered_even_before_initialize() {
    for mut admission in [admission(), initialized_at("2025-03-26")] {
        let answer = admission.admit(raw("ping", json!({}))).unwrap();

        assert_eq!(answer, RequestAction::Respond(Json::empty_object()));
    }
}

/// META-9: "Reject a request lacking a required `_meta` field with `-32602`".
#[test]
fn any_other_request_before_initialize_is_rejected_with_the_missing_key() {
    for method in [
        "tools/list",
        "server/discover",
        "logging/setLevel",
        "own/method",
    ] {
        for params in [json!({}), json!({"_meta": {}}), json!({"_meta": null})] {
            let rejection = admission().admit(raw(method, params)).unwrap_err();

            assert_eq!(rejection.code(), ErrorCode::INVALID_PARAMS, "{method}");
            let message = &rejection.error().message;
            assert!(message.contains(meta_key::PROTOCOL_VERSION), "{message}");
            assert!(message.contains("2026-07-28"), "{message}");
        }
    }
}

#[test]
fn a_legacy_request_has_the_caller_of_initialize() {
    for dialect in Dialects::legacy().iter() {
        let mut admission = initialized_at(dialect.version);

        let call = raw(
            "tools/call",
            json!({"name": "a", "_meta": {"progressToken": 7, "x": 1}}),
        );
        let (request, seal) = request_in(admission.admit(call).unwrap());

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
fn absent_params_of_a_legacy_request_become_an_empty_object() {
    let mut admission = initialized_at("2025-11-25");
    let bare = RawRequest {
        params: None,
        ..raw("tools/list", json!({}))
    };

    let (request, _) = request_in(admission.admit(bare).unwrap());

    assert_eq!(request.params, Json::empty_object());
}

/// LINI-3: "Same version if supported, else another it supports (SHOULD be its latest) — a normal result,
/// not an error"; LINI-11: "must never offer or accept `2026-07-28` through `initialize`".
#[test]
fn initialize_negotiates_the_offered_version_or_our_latest() {
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
        let mut admission = admission();

        let (request, seal) = request_in(admission.admit(initialize(offered)).unwrap());
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
fn a_server_of_few_versions_negotiates_its_own_latest() {
    let served = Dialects::only(|row| row.elicitation == ElicitationModes::Form);
    let mut admission = DuplexAdmission::new(served);

    let (request, _) = request_in(admission.admit(initialize("2025-11-25")).unwrap());

    assert_eq!(request.caller.dialect.version, "2025-06-18");
}

#[test]
fn a_malformed_initialize_does_not_start_the_legacy_era() {
    let table = [
        json!({}),
        json!({"capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
        json!({"protocolVersion": 1, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
        json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "c", "version": "1"}}),
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}),
        json!({"protocolVersion": "2025-11-25", "capabilities": {}}),
    ];
    for params in table {
        let mut admission = admission();

        let rejection = admission
            .admit(raw("initialize", params.clone()))
            .unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::INVALID_PARAMS, "{params}");
        assert!(matches!(admission.era(), Era::Modern), "{params}");
    }
}

#[test]
fn another_initialize_is_answered_at_any_time_and_replaces_the_caller() {
    type SendMessages = fn(&mut DuplexAdmission);
    let cases: [(&str, SendMessages); 6] = [
        ("nothing", |_| {}),
        ("a request before it was ready", |admission| {
            admission.admit(raw("tools/list", json!({}))).unwrap();
        }),
        ("a ping", |admission| {
            admission.handle_notification(&initialized());
            admission.admit(raw("ping", json!({}))).unwrap();
        }),
        ("a request", |admission| {
            admission.handle_notification(&initialized());
            admission.admit(raw("tools/list", json!({}))).unwrap();
        }),
        ("a request that is refused", |admission| {
            admission.handle_notification(&initialized());
            admission
                .admit(raw("resources/subscribe", json!({})))
                .unwrap_err();
        }),
        ("a notification", |admission| {
            admission.handle_notification(&initialized());
            admission
                .handle_notification(&Notification::new("notifications/roots/list_changed", None));
        }),
    ];
    for (what, send_messages) in cases {
        let mut admission = admission();
        admission.admit(initialize("2025-06-18")).unwrap();
        send_messages(&mut admission);
        let (before, _) = request_in(admission.admit(raw("tools/list", json!({}))).unwrap());

        let mut handshake = value(&initialize("2024-11-05").params.unwrap());
        handshake["clientInfo"]["name"] = json!("other");
        handshake["capabilities"] = json!({"roots": {}});
        let handshake = raw("initialize", handshake);
        let (again, _) = request_in(admission.admit(handshake).unwrap());
        let action = admission.handle_notification(&initialized());
        let (after, _) = request_in(admission.admit(raw("tools/list", json!({}))).unwrap());

        assert_eq!(before.caller.dialect.version, "2025-06-18", "{what}");
        assert_eq!(again.caller.dialect.version, "2024-11-05", "{what}");
        assert_eq!(action, NotificationAction::Initialized, "{what}");
        assert_eq!(after.caller, again.caller, "{what}");
        assert!(after.caller.capabilities.roots.is_some(), "{what}");
        let name = after.caller.implementation.as_ref().map(|own| &*own.name);
        assert_eq!(name, Some("other"), "{what}");
    }
}

#[test]
fn another_initialize_keeps_the_log_level() {
    let mut admission = initialized_at("2025-06-18");
    let level = raw("logging/setLevel", json!({"level": "error"}));
    admission.admit(level).unwrap();

    admission.admit(initialize("2025-11-25")).unwrap();
    let (request, _) = request_in(admission.admit(raw("tools/list", json!({}))).unwrap());

    assert_eq!(request.caller.log_level, Some(LoggingLevel::Error));
}

#[test]
fn another_initialize_that_is_refused_changes_nothing() {
    let mut large = value(&initialize("2025-11-25").params.unwrap());
    large["clientInfo"]["name"] = json!("x".repeat(Caller::MAX_BYTES));
    for params in [json!({}), large] {
        let mut admission = initialized_at("2025-06-18");

        let rejection = admission.admit(raw("initialize", params)).unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::INVALID_PARAMS);
        assert_eq!(
            admission.handle_notification(&initialized()),
            NotificationAction::Ignore
        );
        let (request, _) = request_in(admission.admit(raw("tools/list", json!({}))).unwrap());
        assert_eq!(request.caller.dialect.version, "2025-06-18");
    }
}

#[test]
fn a_client_that_describes_itself_at_length_is_refused() {
    let with = |bytes: usize| {
        let mut params = value(&initialize("2025-11-25").params.unwrap());
        params["capabilities"]["experimental"] = json!({"x": {"y": "z".repeat(bytes)}});
        raw("initialize", params)
    };
    let mut admission = admission();

    let rejection = admission.admit(with(Caller::MAX_BYTES)).unwrap_err();
    let is_modern = matches!(admission.era(), Era::Modern);
    let admitted = admission.admit(with(Caller::MAX_BYTES - 500));

    let text = rejection.error().message.clone();
    assert!(text.ends_with("exceeds the limit of 65536 bytes"), "{text}");
    assert!(is_modern);
    assert!(admitted.is_ok());
}

/// The memory is that of decoded JSON, which can be much larger than its text.
#[test]
fn the_memory_of_a_caller_is_estimated_from_above() {
    let of = |capabilities: Value| {
        let mut caller = Caller::new(Dialect::LATEST_LEGACY);
        caller.capabilities = Json::from(capabilities).decode().unwrap();
        caller
    };
    let usual = of(json!({"sampling": {}, "elicitation": {}, "roots": {"listChanged": true}}));
    let nodes = of(json!({"x": vec![json!({"": 1}); 1000]}));

    assert!(
        usual.estimated_memory() < 4096,
        "{}",
        usual.estimated_memory()
    );
    assert!(nodes.bytes() < 10_000);
    assert!(
        nodes.estimated_memory() > 600_000,
        "{}",
        nodes.estimated_memory()
    );
}

/// A modern envelope takes precedence over the method name.
#[test]
fn initialize_with_a_modern_envelope_is_rejected() {
    for (mut admission, is_legacy) in [(admission(), false), (initialized_at("2025-11-25"), true)] {
        let mut handshake = initialize("2025-11-25");
        let mut params = value(&handshake.params.unwrap());
        params["_meta"] = envelope();
        handshake.params = Some(params.into());

        let rejection = admission.admit(handshake).unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::METHOD_NOT_FOUND);
        assert_eq!(matches!(admission.era(), Era::Legacy(_)), is_legacy);
    }
}

/// COMPAT-5: a modern-only server SHOULD "name its supported versions in whatever error it returns to
/// `initialize`".
#[test]
fn a_modern_only_server_lists_its_versions_to_a_legacy_client() {
    let mut admission = DuplexAdmission::new(Dialects::modern());

    let rejection = admission.admit(initialize("2025-11-25")).unwrap_err();
    let ping = admission.admit(raw("ping", json!({}))).unwrap_err();

    assert_eq!(rejection.code(), ErrorCode::UNSUPPORTED_PROTOCOL_VERSION);
    assert_eq!(
        value(rejection.error().data.as_ref().unwrap()),
        json!({"supported": ["2026-07-28"], "requested": "2025-11-25"})
    );
    assert_eq!(ping.code(), ErrorCode::INVALID_PARAMS);
}

#[test]
fn a_legacy_only_server_rejects_modern_requests() {
    let mut admission = DuplexAdmission::new(Dialects::legacy());

    let rejection = admission
        .admit(raw("tools/list", json!({"_meta": envelope()})))
        .unwrap_err();

    assert_eq!(rejection.code(), ErrorCode::UNSUPPORTED_PROTOCOL_VERSION);
}

#[test]
fn methods_of_the_other_era_are_not_found() {
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    ] {
        let rejection = admission()
            .admit(raw(method, json!({"_meta": envelope()})))
            .unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::METHOD_NOT_FOUND, "{method}");
    }
    for method in ["server/discover", "subscriptions/listen", "tasks/update"] {
        let rejection = initialized_at("2025-11-25")
            .admit(raw(method, json!({})))
            .unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::METHOD_NOT_FOUND, "{method}");
    }
    let own = initialized_at("2025-11-25").admit(raw("own/method", json!({})));
    assert!(own.is_ok());
}

/// LUTIL-2: "`logging/setLevel {level}`; server then filters […]; without setLevel the server picks".
#[test]
fn a_legacy_log_level_is_left_to_the_server_until_it_is_set() {
    let mut admission = initialized_at("2025-11-25");
    let level = |admission: &mut DuplexAdmission| {
        let (request, _) = request_in(admission.admit(raw("tools/list", json!({}))).unwrap());
        request.caller.log_level
    };

    let before = level(&mut admission);
    let answer = admission
        .admit(raw("logging/setLevel", json!({"level": "warning"})))
        .unwrap();
    let after = level(&mut admission);
    let bad = admission
        .admit(raw("logging/setLevel", json!({"level": "loud"})))
        .unwrap_err();

    assert_eq!(before, None);
    assert_eq!(answer, RequestAction::Respond(Json::empty_object()));
    assert_eq!(after, Some(LoggingLevel::Warning));
    assert_eq!(bad.code(), ErrorCode::INVALID_PARAMS);
    assert_eq!(level(&mut admission), Some(LoggingLevel::Warning));
}

#[test]
fn legacy_resource_subscriptions_are_returned_as_actions() {
    let mut admission = initialized_at("2025-11-25");

    let subscribe = admission.admit(raw("resources/subscribe", json!({"uri": "file:///a"})));
    let unsubscribe = admission.admit(raw("resources/unsubscribe", json!({"uri": "file:///a"})));
    let bad = admission.admit(raw("resources/subscribe", json!({})));

    assert_eq!(
        subscribe.unwrap(),
        RequestAction::SubscribeResource("file:///a".into())
    );
    assert_eq!(
        unsubscribe.unwrap(),
        RequestAction::UnsubscribeResource("file:///a".into())
    );
    assert_eq!(bad.unwrap_err().code(), ErrorCode::INVALID_PARAMS);
}

/// Returns the admission state of a client whose handshake was answered with these capabilities.
fn answered_with(capabilities: &Value) -> DuplexAdmission {
    let mut admission = admission();
    let (_, form) = request_in(admission.admit(initialize("2025-11-25")).unwrap());
    let result = Json::from(json!({"supportedVersions": [], "capabilities": capabilities}));
    seal(&form, &server(), Ok(result)).unwrap();
    admission
}

/// The methods that depend on a capability.
fn feature_methods() -> [RawRequest; 3] {
    [
        raw("logging/setLevel", json!({"level": "info"})),
        raw("resources/subscribe", json!({"uri": "a:b"})),
        raw("resources/unsubscribe", json!({"uri": "a:b"})),
    ]
}

/// ERR-7: "-32601 covers both unknown methods and methods behind a capability the server did not
/// advertise".
#[test]
fn methods_of_features_that_the_handshake_did_not_declare_are_not_found() {
    let mut admission = answered_with(&json!({"resources": {"listChanged": true}, "own": 1}));

    for request in feature_methods() {
        let method = request.method.clone();
        let rejection = admission.admit(request).unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::METHOD_NOT_FOUND, "{method}");
    }
}

#[test]
fn methods_of_features_that_the_handshake_declared_are_admitted() {
    let mut admission = answered_with(&json!({"logging": {}, "resources": {"subscribe": true}}));

    assert!(
        feature_methods()
            .map(|it| admission.admit(it))
            .iter()
            .all(Result::is_ok)
    );
}

#[test]
fn a_second_handshake_declares_its_own_features() {
    let mut admission = answered_with(&json!({}));

    let (_, form) = request_in(admission.admit(initialize("2025-11-25")).unwrap());
    let result = Json::from(json!({"supportedVersions": [], "capabilities": {"logging": {}}}));
    seal(&form, &server(), Ok(result)).unwrap();
    let [set_level, subscribe, _] = feature_methods();

    assert!(admission.admit(set_level).is_ok());
    assert!(admission.admit(subscribe).is_err());
}

#[test]
fn a_client_that_does_not_wait_for_the_handshake_may_use_every_feature() {
    let mut admission = admission();
    admission.admit(initialize("2025-11-25")).unwrap();

    assert!(
        feature_methods()
            .map(|it| admission.admit(it))
            .iter()
            .all(Result::is_ok)
    );
}

#[test]
fn legacy_features_are_derived_from_the_capabilities() {
    let capabilities = Json::from(json!({"logging": {}, "resources": {"subscribe": true}}));
    let features = LegacyFeatures::from(&capabilities.decode().unwrap());
    let none = LegacyFeatures::from(&Json::from(json!({"resources": {}})).decode().unwrap());

    assert!(features.logging && features.subscriptions);
    assert_eq!(none, LegacyFeatures::default());
}

#[test]
fn notifications_are_dispatched_with_their_caller() {
    let roots = Notification::new("notifications/roots/list_changed", None);
    let other = Notification::new("notifications/own", None);
    let all = [&initialized(), &initialized(), &roots, &other];
    use NotificationAction::{Dispatch, Ignore, Initialized};

    let mut modern = admission();
    let actions = all.map(|notification| modern.handle_notification(notification));
    let unknown = Arc::new(Caller::new(Dialect::LATEST));
    assert_eq!(actions, [Ignore, Ignore, Ignore, Dispatch(unknown)]);

    let mut legacy = admission();
    let (request, _) = request_in(legacy.admit(initialize("2025-11-25")).unwrap());
    let actions = all.map(|notification| legacy.handle_notification(notification));
    let caller = request.caller;
    let expected = [
        Initialized,
        Ignore,
        Dispatch(caller.clone()),
        Dispatch(caller),
    ];
    assert_eq!(actions, expected);
}

#[test]
fn a_notification_with_an_envelope_has_the_caller_of_its_envelope() {
    let sender = Arc::new(caller(Dialect::LATEST));
    let request = Request::new("notifications/own", Json::empty_object(), sender.clone());
    let params = stamp(&request).params;
    let mut admission = initialized_at("2025-11-25");

    let action = admission.handle_notification(&Notification::new("notifications/own", params));

    assert_eq!(action, NotificationAction::Dispatch(sender));
}

#[test]
fn a_server_of_legacy_versions_ignores_notifications_before_initialize() {
    let mut admission = DuplexAdmission::new(Dialects::legacy());

    let action = admission.handle_notification(&Notification::new("notifications/own", None));

    assert_eq!(action, NotificationAction::Ignore);
}

#[test]
fn unsolicited_messages_wait_until_a_legacy_client_is_ready() {
    let ready = |admission: &DuplexAdmission| match admission.era() {
        Era::Modern => None,
        Era::Legacy(state) => Some(state.is_ready()),
    };
    let mut admission = admission();

    assert_eq!(ready(&admission), None);
    admission.admit(initialize("2025-11-25")).unwrap();
    assert_eq!(ready(&admission), Some(false));
    admission.handle_notification(&initialized());
    assert_eq!(ready(&admission), Some(true));
}
