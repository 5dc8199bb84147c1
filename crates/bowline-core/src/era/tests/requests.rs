//! Tests of the steps of modern admission, and of `_meta` after stamping.

use bowline_types::{ErrorCode, LoggingLevel, meta_key};

use super::*;

fn admit(params: Value) -> Result<Request, Rejection> {
    modern::admit(raw("tools/list", params), &Dialects::all()).map(|(request, _)| request)
}

/// META-9: "Reject a request lacking a required `_meta` field with `-32602`"; VER-1: "Answer `-32022` with
/// `data.supported` (list) and `data.requested` (echo)".
#[test]
fn each_invalid_envelope_is_rejected_with_its_error_code() {
    const INVALID: ErrorCode = ErrorCode::INVALID_PARAMS;
    const UNSUPPORTED: ErrorCode = ErrorCode::UNSUPPORTED_PROTOCOL_VERSION;
    let version = meta_key::PROTOCOL_VERSION;
    let capabilities = meta_key::CLIENT_CAPABILITIES;
    let client = meta_key::CLIENT_INFO;
    let table = [
        (json!({}), INVALID),
        (json!({"_meta": {}}), INVALID),
        (json!({"_meta": null}), INVALID),
        (json!({"_meta": [envelope()]}), INVALID),
        (json!({"_meta": envelope_with(version, None)}), INVALID),
        (
            json!({"_meta": envelope_with(version, Some(json!(7)))}),
            INVALID,
        ),
        (
            json!({"_meta": envelope_with(version, Some(json!(null)))}),
            INVALID,
        ),
        (
            json!({"_meta": envelope_with(version, Some(json!("2099-01-01")))}),
            UNSUPPORTED,
        ),
        (
            json!({"_meta": envelope_with(version, Some(json!("")))}),
            UNSUPPORTED,
        ),
        // Legacy versions require `initialize`.
        (
            json!({"_meta": envelope_with(version, Some(json!("2025-11-25")))}),
            UNSUPPORTED,
        ),
        (json!({"_meta": envelope_with(capabilities, None)}), INVALID),
        (
            json!({"_meta": envelope_with(capabilities, Some(json!([])))}),
            INVALID,
        ),
        (
            json!({"_meta": envelope_with(capabilities, Some(json!(null)))}),
            INVALID,
        ),
        (
            json!({"_meta": envelope_with(capabilities, Some(json!("roots")))}),
            INVALID,
        ),
        (
            json!({"_meta": envelope_with(client, Some(json!({"name": "c"})))}),
            INVALID,
        ),
        (
            json!({"_meta": envelope_with(client, Some(json!(["c", null, "1", null, null, null])))}),
            INVALID,
        ),
        (
            json!({"_meta": envelope_with(meta_key::LOG_LEVEL, Some(json!("loud")))}),
            INVALID,
        ),
        (
            json!({"_meta": envelope_with(meta_key::PROGRESS_TOKEN, Some(json!(1.5)))}),
            INVALID,
        ),
    ];
    for (params, code) in table {
        let rejection = admit(params.clone()).unwrap_err();

        assert_eq!(rejection.code(), code, "{params}");
    }
}

/// A future revision may change the rest of the envelope.
#[test]
fn the_version_is_checked_before_the_rest_of_the_envelope() {
    let meta = json!({(meta_key::PROTOCOL_VERSION): "2099-01-01"});

    let rejection = admit(json!({"_meta": meta})).unwrap_err();

    assert_eq!(
        value(rejection.error().data.as_ref().unwrap()),
        json!({"supported": ["2026-07-28"], "requested": "2099-01-01"})
    );
}

/// An empty list would make a modern client treat the server as incompatible.
#[test]
fn a_legacy_only_server_lists_its_legacy_versions() {
    let served = Dialects::only(|dialect| dialect.version == "2025-11-25");

    let rejection = Rejection::unsupported_version("2026-07-28", &served);

    assert_eq!(
        value(rejection.error().data.as_ref().unwrap()),
        json!({"supported": ["2025-11-25"], "requested": "2026-07-28"})
    );
}

#[test]
fn a_duplicate_key_is_rejected() {
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    for params in [
        format!(r#"{{"_meta":{{{version},{version},{capabilities}}}}}"#),
        format!(r#"{{"_meta":{{{version},{capabilities}}},"_meta":{{{version},{capabilities}}}}}"#),
    ] {
        let mut request = raw("tools/list", json!({}));
        request.params = Some(Json::parse(params).unwrap().into());

        let rejection = modern::admit(request.clone(), &Dialects::all()).unwrap_err();
        let remembered = initialized_at("2025-11-25").admit(request).unwrap_err();

        assert_eq!(rejection.code(), ErrorCode::INVALID_PARAMS);
        assert_eq!(remembered.code(), ErrorCode::INVALID_PARAMS);
    }
}

/// META-10: "Serve (never reject) a request that omits `clientInfo`".
#[test]
fn client_info_is_optional() {
    let meta = envelope_with(meta_key::CLIENT_INFO, None);

    let request = admit(json!({"_meta": meta})).unwrap();

    assert_eq!(request.caller.implementation, None);
}

/// META-12: "Infer capabilities from prior requests": a server MUST NOT; "`{}` means no optional
/// capability". LOG-2: no logs "for a request without `_meta` logLevel".
#[test]
fn an_absent_envelope_member_is_not_inherited() {
    let request = admit(json!({"_meta": envelope()})).unwrap();

    assert_eq!(request.caller.capabilities, Default::default());
    assert_eq!(request.caller.log_level, None);
    assert_eq!(request.progress_token, None);
}

#[test]
fn admission_can_be_done_step_by_step() {
    let params = json!({"_meta": envelope_with(meta_key::LOG_LEVEL, Some(json!("info")))}).into();

    let envelope = modern::Envelope::read(Some(&params)).unwrap();
    let dialect = envelope.dialect(&Dialects::all()).unwrap();
    let caller = envelope.caller(dialect).unwrap();

    assert_eq!(envelope.version(), "2026-07-28");
    assert_eq!(caller.log_level, Some(LoggingLevel::Info));
    assert_eq!(envelope.progress_token().unwrap(), None);
}

/// META-6: "Put `protocolVersion` (string) and `clientCapabilities` (object, may be `{}`) in `params._meta`
/// of EVERY request"; META-7: "Add `clientInfo`".
#[test]
fn a_modern_stamp_adds_the_envelope_and_keeps_the_order_of_meta() {
    let mut caller = caller(Dialect::LATEST);
    caller.log_level = Some(LoggingLevel::Error);
    let params = Json::parse(
        r#"{"cursor":"x","_meta":{"z":1.0,"io.modelcontextprotocol/protocolVersion":"mine","a":[ ]}}"#,
    );
    let mut request = Request::new("tools/list", params.unwrap(), Arc::new(caller));
    request.progress_token = Some("p".into());

    let stamped = stamp(&request);

    assert_eq!(stamped.method, "tools/list");
    assert_eq!(
        stamped.params.unwrap().as_str(),
        concat!(
            r#"{"cursor":"x","_meta":{"z":1.0,"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""a":[ ],"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"#,
            r#""io.modelcontextprotocol/clientCapabilities":{},"#,
            r#""io.modelcontextprotocol/logLevel":"error","progressToken":"p"}}"#
        )
    );
}

/// ROOT-1: "Declare `roots: {}` per request (no `listChanged` any more)".
#[test]
fn a_modern_stamp_does_not_declare_roots_list_changed() {
    let mut caller = caller(Dialect::LATEST);
    let declared = json!({"roots": {"listChanged": true, "own": 1}, "sampling": {}});
    caller.capabilities = Json::from(declared).decode().unwrap();
    let request = Request::new("tools/list", Json::empty_object(), Arc::new(caller));

    let stamped = value(&stamp(&request).params.unwrap());

    assert_eq!(
        stamped["_meta"][meta_key::CLIENT_CAPABILITIES],
        json!({"roots": {"own": 1}, "sampling": {}})
    );
}

#[test]
fn envelope_members_that_the_caller_lacks_are_removed() {
    let meta = json!({
        (meta_key::CLIENT_INFO): {"name": "x", "version": "x"}, (meta_key::LOG_LEVEL): "debug",
        (meta_key::PROGRESS_TOKEN): 1, "traceparent": "00-a-b-01",
    });
    let anonymous = Arc::new(Caller::new(Dialect::LATEST));
    let request = Request::new("tools/list", json!({"_meta": meta}), anonymous);

    let stamped = value(&stamp(&request).params.unwrap());

    let mut expected = envelope_with(meta_key::CLIENT_INFO, None);
    expected["traceparent"] = json!("00-a-b-01");
    assert_eq!(stamped, json!({"_meta": expected}));
}

/// "Do not leak modern headers/`_meta` into legacy traffic".
#[test]
fn a_legacy_stamp_has_no_envelope() {
    for dialect in Dialects::legacy().iter() {
        let caller = Arc::new(caller(dialect));
        let meta = envelope_with("com.example/own", Some(json!(1)));
        let mut request = Request::new("tools/list", json!({"_meta": meta}), Arc::clone(&caller));
        request.progress_token = Some(7.into());
        let bare = Request::new("tools/list", json!({"_meta": envelope()}), caller);

        assert_eq!(
            value(&stamp(&request).params.unwrap()),
            json!({"_meta": {"com.example/own": 1, "progressToken": 7}})
        );
        assert_eq!(
            stamp(&bare).params,
            None,
            "`_meta` is empty and thus removed"
        );
    }
}

/// LINI-1: "Open with `initialize` {protocolVersion, capabilities, clientInfo}".
#[test]
fn a_legacy_discovery_is_stamped_as_initialize() {
    for dialect in Dialects::legacy().iter() {
        let mut caller = caller(dialect);
        caller.capabilities = Json::from(json!({"roots": {}})).decode().unwrap();
        let params = Json::from(json!({"_meta": {"own": 1}}));
        let request = Request::new("server/discover", params, Arc::new(caller));

        let stamped = stamp(&request);

        assert_eq!(stamped.method, "initialize");
        assert_eq!(
            value(&stamped.params.unwrap()),
            json!({
                "_meta": {"own": 1}, "protocolVersion": dialect.version,
                "capabilities": {"roots": {}}, "clientInfo": {"name": "c", "version": "1"},
            })
        );
        let notification = initialized_notification(dialect).unwrap();
        assert_eq!(notification.method, "notifications/initialized");
    }
    assert_eq!(initialized_notification(Dialect::LATEST), None);
}

#[test]
fn params_that_are_not_an_object_are_stamped_unchanged() {
    for dialect in Dialect::ALL {
        let request = Request::new("a/b", Json::null(), Arc::new(caller(dialect)));

        assert_eq!(stamp(&request).params, Some(Json::null()));
    }
}

/// BASE-14: "Originate JSON-RPC requests": a modern server MUST NOT.
#[test]
fn a_client_admits_requests_of_legacy_servers_only() {
    let ask = || raw("sampling/createMessage", json!({"maxTokens": 1}));
    let modern = Arc::new(caller(Dialect::LATEST));
    let refused = admit_from_server(&modern, ask()).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::METHOD_NOT_FOUND);

    for dialect in Dialects::legacy().iter() {
        let server = Arc::new(caller(dialect));

        let (request, seal) = request_in(admit_from_server(&server, ask()).unwrap());
        let ping = admit_from_server(&server, raw("ping", json!({}))).unwrap();
        let elicitation = admit_from_server(&server, raw("elicitation/create", json!({})));

        assert_eq!(request.caller, server);
        assert_eq!(seal, Seal::new(dialect, "sampling/createMessage"));
        assert_eq!(ping, RequestAction::Respond(Json::empty_object()));
        assert_eq!(
            elicitation.is_ok(),
            dialect.elicitation != ElicitationModes::None,
            "{dialect}"
        );
    }
}

/// LUTIL-3: legacy updates arrive "without subscriptionId".
#[test]
fn a_legacy_notification_has_no_subscription_id() {
    let changed = Notification::new(
        "notifications/resources/updated",
        Some(json!({"uri": "a:b", "_meta": {(meta_key::SUBSCRIPTION_ID): 1}}).into()),
    );
    let list_changed = Notification::new(
        "notifications/tools/list_changed",
        Some(json!({"_meta": {(meta_key::SUBSCRIPTION_ID): 1}}).into()),
    );
    let acknowledged = Notification::new("notifications/subscriptions/acknowledged", None);
    for dialect in Dialects::legacy().iter() {
        let converted = convert_notification(dialect, changed.clone()).unwrap();

        assert_eq!(converted.params, Some(json!({"uri": "a:b"}).into()));
        assert_eq!(
            convert_notification(dialect, list_changed.clone())
                .unwrap()
                .params,
            None
        );
        assert_eq!(convert_notification(dialect, acknowledged.clone()), None);
    }
    assert_eq!(
        convert_notification(Dialect::LATEST, changed.clone()),
        Some(changed)
    );
    let gone = Notification::new("notifications/elicitation/complete", None);
    assert_eq!(convert_notification(Dialect::LATEST, gone), None);
}
