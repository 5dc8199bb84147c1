//! Round trips: a stamped request is admitted unchanged, a sealed outcome is unsealed unchanged.

use bowline_types::{DiscoverResult, LoggingLevel, ProgressToken, ProtocolVersion, meta_key};

use super::*;

/// Returns callers of every dialect, with various capabilities and log levels.
fn callers() -> Vec<Caller> {
    let mut callers = Vec::new();
    for dialect in Dialect::ALL {
        let capabilities = [
            json!({}),
            json!({"roots": {}, "sampling": {}}),
            json!({"elicitation": {"form": {}, "url": {}}, "own": [1, {"a": null}]}),
        ];
        for capabilities in capabilities {
            let levels = match dialect.negotiation {
                Negotiation::EveryRequest => [None, Some(LoggingLevel::Notice)],
                Negotiation::Handshake => [Some(LoggingLevel::Debug), Some(LoggingLevel::Alert)],
            };
            for log_level in levels {
                let mut caller = caller(dialect);
                caller.capabilities = Json::from(capabilities.clone()).decode().unwrap();
                caller.log_level = log_level;
                callers.push(caller);
            }
        }
    }
    let mut anonymous = Caller::new(Dialect::LATEST);
    anonymous.log_level = Some(LoggingLevel::Debug);
    callers.push(anonymous);
    callers
}

fn requests(caller: &Arc<Caller>) -> Vec<Request> {
    let params = [
        json!({}),
        json!({"cursor": "x"}),
        json!({"name": "t", "arguments": {"_meta": {"deep": 1}, "n": [1.0, -0.5e3]}}),
        json!({"_meta": {"traceparent": "00-a-b-01", "com.example/own": {"a": []}}, "uri": "a:b"}),
    ];
    let tokens: [Option<ProgressToken>; 3] = [None, Some(7.into()), Some("7".into())];
    let mut requests = Vec::new();
    for params in params {
        for token in &tokens {
            for method in ["tools/list", "tools/call", "com.example/own"] {
                let mut request = Request::new(method, params.clone(), Arc::clone(caller));
                request.progress_token = token.clone();
                requests.push(request);
            }
        }
    }
    requests
}

/// Returns the admission state after the messages that the dialect of `caller` requires before the first request.
fn admission_for(caller: &Arc<Caller>) -> DuplexAdmission {
    let mut admission = admission();
    if caller.dialect.negotiation == Negotiation::EveryRequest {
        return admission;
    }
    let discover = Request::new("server/discover", Json::empty_object(), Arc::clone(caller));
    admission.admit(stamp(&discover).with_id(0)).unwrap();
    admission.handle_notification(&initialized_notification(caller.dialect).unwrap());
    let level = json!({"level": caller.log_level});
    admission.admit(raw("logging/setLevel", level)).unwrap();
    admission
}

/// Returns the caller as the server decodes it, without what its version does not define.
fn as_decoded(caller: &Arc<Caller>) -> Arc<Caller> {
    if caller.dialect.is_modern() {
        return Arc::clone(caller);
    }
    let discover = Request::new("server/discover", Json::empty_object(), Arc::clone(caller));
    let sent = value(&stamp(&discover).params.unwrap());
    let mut as_decoded = Caller::clone(caller);
    as_decoded.capabilities = serde_json::from_value(sent["capabilities"].clone()).unwrap();
    as_decoded.implementation = serde_json::from_value(sent["clientInfo"].clone()).unwrap();
    Arc::new(as_decoded)
}

/// Returns the params without envelope members.
fn without_envelope(params: &Json) -> Value {
    let mut params = value(params);
    let meta = params.get_mut("_meta").and_then(Value::as_object_mut);
    if let Some(meta) = meta {
        for key in [
            meta_key::PROTOCOL_VERSION,
            meta_key::CLIENT_INFO,
            meta_key::CLIENT_CAPABILITIES,
            meta_key::LOG_LEVEL,
            meta_key::PROGRESS_TOKEN,
        ] {
            meta.remove(key);
        }
        if meta.is_empty() {
            params.as_object_mut().unwrap().remove("_meta");
        }
    }
    params
}

#[test]
fn a_stamped_request_is_admitted_as_the_same_request() {
    for caller in callers().into_iter().map(Arc::new) {
        let mut admission = admission_for(&caller);
        for request in requests(&caller) {
            let raw = stamp(&request).with_id(1);
            let (admitted, seal) = request_in(admission.admit(raw).unwrap());

            assert_eq!(admitted.method, request.method);
            assert_eq!(admitted.caller, as_decoded(&request.caller));
            assert_eq!(admitted.progress_token, request.progress_token);
            assert_eq!(
                without_envelope(&admitted.params),
                without_envelope(&request.params)
            );
            assert_eq!(seal, Seal::new(caller.dialect, request.method));
        }
    }
}

#[test]
fn an_admitted_request_can_be_forwarded_unchanged() {
    for caller in callers().into_iter().map(Arc::new) {
        let mut admission = admission_for(&caller);
        for request in requests(&caller) {
            let first = stamp(&request);
            let (admitted, _) = request_in(admission.admit(first.clone().with_id(1)).unwrap());
            let second = stamp(&admitted);
            let (again, _) = request_in(admission.admit(second.clone().with_id(2)).unwrap());

            assert_eq!(second, first);
            assert_eq!(again, admitted);
        }
    }
}

/// A bridge forwards requests in another dialect, without traces of the first one.
#[test]
fn a_request_can_be_forwarded_in_another_dialect() {
    for from in callers().into_iter().map(Arc::new) {
        for to in Dialect::ALL {
            let mut caller = Caller::clone(&from);
            caller.dialect = to;
            caller.implementation = Some(Implementation::new("bridge", "1"));
            caller.log_level = Some(LoggingLevel::Debug);
            let caller = Arc::new(caller);
            let mut far = admission_for(&caller);
            let mut near = admission_for(&from);
            for request in requests(&from) {
                let near_raw = stamp(&request).with_id(1);
                let (mut bridged, _) = request_in(near.admit(near_raw).unwrap());
                bridged.caller = Arc::clone(&caller);
                let (arrived, _) = request_in(far.admit(stamp(&bridged).with_id(1)).unwrap());

                assert_eq!(arrived.caller, as_decoded(&caller));
                assert_eq!(arrived.progress_token, request.progress_token);
                assert_eq!(
                    without_envelope(&arrived.params),
                    without_envelope(&request.params)
                );
            }
        }
    }
}

#[test]
fn a_sealed_result_is_unsealed_as_the_same_result() {
    let results = [
        json!({}),
        json!({"content": [{"type": "text", "text": "\u{0}\n\"é"}], "isError": true}),
        json!({"_meta": {"own": {"a": 1}}, "nextCursor": ""}),
    ];
    for dialect in Dialect::ALL {
        for method in [
            "tools/call",
            "tools/list",
            "resources/read",
            "com.example/own",
        ] {
            for result in &results {
                let sealed = seal(
                    &Seal::new(dialect, method),
                    &server(),
                    Ok(result.clone().into()),
                );
                let unsealed = unseal(method, dialect, sealed).unwrap();

                let Unsealed::Complete(unsealed) = unsealed else {
                    panic!("{method} in {dialect} became {unsealed:?}");
                };
                assert_eq!(without_seal(&unsealed), *result, "{method} in {dialect}");
            }
        }
    }
}

#[test]
fn sealing_is_idempotent() {
    for dialect in Dialect::ALL {
        let form = Seal::new(dialect, "resources/read");
        let result = json!({"contents": [], "_meta": {"own": 1}}).into();

        let once = seal(&form, &server(), Ok(result));
        let twice = seal(&form, &server(), once.clone());

        assert_eq!(once, twice);
    }
}

/// LINI-2: "Reply with protocolVersion, capabilities, serverInfo[, instructions]".
#[test]
fn discovery_has_the_same_result_in_every_dialect() {
    for dialect in Dialect::ALL {
        let caller = Arc::new(caller(dialect));
        let discover = Request::new("server/discover", Json::empty_object(), caller);
        let answer = json!({
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": true}},
            "instructions": "ask me",
        });

        let mut admission = admission();
        let (request, form) = request_in(admission.admit(stamp(&discover).with_id(0)).unwrap());
        let sealed = seal(&form, &server(), Ok(answer.into()));
        let unsealed = unseal(&discover.method, dialect, sealed).unwrap();

        let Unsealed::Complete(unsealed) = unsealed else {
            panic!("`server/discover` in {dialect} became {unsealed:?}");
        };
        let discovery: DiscoverResult = unsealed.decode().unwrap();
        assert_eq!(request.method, "server/discover");
        assert_eq!(
            discovery.supported_versions,
            [ProtocolVersion::from(dialect.version)]
        );
        assert!(discovery.capabilities.tools.is_some());
        assert_eq!(discovery.instructions.as_deref(), Some("ask me"));
        let server = discovery.meta.unwrap().server_info().unwrap();
        assert_eq!(server, Some(Implementation::new("s", "2")));
    }
}

/// Returns the result without the members that sealing adds.
fn without_seal(result: &Json) -> Value {
    let mut result = value(result);
    let members = result.as_object_mut().unwrap();
    for name in ["resultType", "ttlMs", "cacheScope"] {
        members.remove(name);
    }
    if let Some(meta) = members.get_mut("_meta").and_then(Value::as_object_mut) {
        meta.remove(meta_key::SERVER_INFO);
        if meta.is_empty() {
            members.remove("_meta");
        }
    }
    result
}
