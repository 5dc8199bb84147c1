//! Tests of each admission check, of their order, and of the era of a message.

use std::collections::BTreeMap;

use ::http::Request as HttpRequest;
use serde_json::{Value, json};

use super::*;
use crate::http::legacy::PostBody;

/// A server with all methods of the newest dialect and one tool that mirrors an argument.
struct TestCatalog {
    tools: BTreeMap<&'static str, Arc<ParamHeaders>>,
}

impl TestCatalog {
    fn new() -> Self {
        let schema =
            json!({"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
        let plan = ParamHeaders::read(&schema.into()).unwrap();
        Self {
            tools: [("add", Arc::default()), ("sql", Arc::new(plan))].into(),
        }
    }
}

impl MethodCatalog for TestCatalog {
    fn has_method(&self, method: &str) -> bool {
        Dialect::LATEST.knows_request(method) && method != "completion/complete"
    }

    fn param_headers(&self, tool: &str, caller: &Caller) -> Option<Arc<ParamHeaders>> {
        let client = caller.implementation.as_ref().map(|client| &*client.name);
        let tool = self.tools.get(tool).cloned();
        tool.filter(|_| client != Some("sees no tools"))
    }
}

const MODERN: &str = "2026-07-28";

fn meta(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    map
}

fn post(
    list: &[(&str, &str)],
    body: &Value,
    served: &Dialects,
) -> Result<AdmittedPost, HttpRejection> {
    let body = Bytes::from(body.to_string());
    admit(
        &headers(list),
        &body,
        served,
        &CallerCache::default(),
        &TestCatalog::new(),
    )
}

/// Returns the status and code of the rejection of `body`, which must be the same with and without the legacy era.
fn rejected(list: &[(&str, &str)], body: &Value) -> (u16, i64) {
    let by_all = post(list, body, &Dialects::all()).expect_err("it should be rejected");
    let by_modern = post(list, body, &Dialects::modern()).expect_err("it should be rejected");
    assert_eq!(
        by_all, by_modern,
        "serving legacy versions changed the rejection"
    );
    status_and_code(&by_all, body)
}

fn status_and_code(rejection: &HttpRejection, body: &Value) -> (u16, i64) {
    let id = body
        .get("id")
        .map(|id| serde_json::from_value(id.clone()).unwrap());
    assert_eq!(
        rejection.id(),
        id.as_ref(),
        "an error names the request it is about"
    );
    (rejection.status().as_u16(), rejection.error().code.0)
}

fn call(tool: &str, arguments: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta(MODERN)});
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
}

fn request(method: &str, meta: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": {"_meta": meta}})
}

const CALL: [(&str, &str); 3] = [
    ("mcp-protocol-version", MODERN),
    ("mcp-method", "tools/call"),
    ("mcp-name", "sql"),
];

#[test]
fn a_modern_request_is_admitted() {
    let list = [&CALL[..], &[("mcp-param-region", "eu")]].concat();
    let body = call("sql", &json!({"region": "eu"}));

    let admitted = post(&list, &body, &Dialects::all()).unwrap();

    let AdmittedPost::Modern { id, request, seal } = admitted else {
        panic!("{admitted:?}");
    };
    assert_eq!(id, 7.into());
    assert_eq!(request.method, "tools/call");
    assert_eq!(request.caller.dialect, Dialect::LATEST);
    assert_eq!(seal.dialect, Dialect::LATEST);
}

#[test]
fn the_param_headers_depend_on_the_caller() {
    let mut body = call("sql", &json!({"region": "eu"}));
    let without_header = post(&CALL, &body, &Dialects::all());
    body["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] =
        json!({"name": "sees no tools", "version": "1"});
    let by_other_caller = post(&CALL, &body, &Dialects::all());

    assert!(without_header.is_err());
    assert!(by_other_caller.is_ok(), "{by_other_caller:?}");
}

#[test]
fn a_catalog_of_any_method_does_not_admit_methods_of_the_other_era() {
    let admit_any = |method: &str| {
        let list = headers(&[("mcp-protocol-version", MODERN), ("mcp-method", method)]);
        let body = Bytes::from(request(method, &meta(MODERN)).to_string());
        admit(
            &list,
            &body,
            &Dialects::all(),
            &CallerCache::default(),
            &AnyMethod,
        )
    };

    assert!(admit_any("com.example/own").is_ok());
    assert_eq!(admit_any("initialize").unwrap_err().status(), 404);
}

/// Headers and a body, with the status, the code and a part of the message of their rejection.
type RejectedRequest<'a> = (&'a [(&'a str, &'a str)], Value, u16, i64, &'a str);

/// Each request fails its own check and all later ones, so that their order shows.
fn assert_rejected_in_order(requests: &[RejectedRequest<'_>]) {
    for (list, body, status, code, text) in requests {
        assert_eq!(rejected(list, body), (*status, *code), "{list:?} {body}");
        let rejection = post(list, body, &Dialects::all()).unwrap_err();
        let message = &rejection.error().message;
        assert!(message.contains(text), "{list:?} {body} gave {message}");
    }
}

#[test]
fn a_request_that_fails_two_envelope_checks_gets_the_error_of_the_earlier() {
    let modern = version(MODERN);
    let twice = [modern, modern].concat();
    let marked = |mark| json!({"io.modelcontextprotocol/protocolVersion": mark});
    let body = |meta: &Value| request("no/such", meta);
    let future = body(&marked(json!("2031-01-01")));
    let no_date = body(&marked(json!("v999.0.0")));
    let no_capabilities = body(&marked(json!(MODERN)));

    assert_rejected_in_order(&[
        // 4: no version in `_meta`, nor anything else.
        (&modern, body(&json!({})), 400, -32602, "protocolVersion"),
        (
            &modern,
            body(&marked(json!(1))),
            400,
            -32602,
            "protocolVersion",
        ),
        // 5: the header is missing, differs or is repeated, and the version is not served.
        (&[], future.clone(), 400, -32020, "mcp-protocol-version"),
        (
            &modern,
            no_date.clone(),
            400,
            -32020,
            "mcp-protocol-version",
        ),
        (
            &twice,
            no_capabilities.clone(),
            400,
            -32020,
            "mcp-protocol-version",
        ),
        // 6: the version is not served, and the rest of the envelope is missing.
        (&version("2031-01-01"), future, 400, -32022, "version"),
        (&version("v999.0.0"), no_date, 400, -32022, "version"),
        // 7: no capabilities, and no Mcp-Method.
        (&modern, no_capabilities, 400, -32602, "clientCapabilities"),
    ]);
}

#[test]
fn a_request_that_fails_two_method_checks_gets_the_error_of_the_earlier() {
    let plain = |method| request(method, &meta(MODERN));
    let sql = call("sql", &json!({"region": "eu"}));
    let method = |name| [CALL[0], ("mcp-method", name)];

    assert_rejected_in_order(&[
        // 8: no Mcp-Method, and the method is unknown.
        (&CALL[..1], plain("no/such"), 400, -32020, "mcp-method"),
        (&CALL[..1], sql.clone(), 400, -32020, "mcp-method"),
        // 9: the method is unknown.
        (&method("no/such"), plain("no/such"), 404, -32601, "no/such"),
        (
            &method("completion/complete"),
            plain("completion/complete"),
            404,
            -32601,
            "complete",
        ),
        // 10: no Mcp-Name, and no Mcp-Param-Region.
        (&CALL[..2], sql.clone(), 400, -32020, "mcp-name"),
        // 11: no Mcp-Param-Region.
        (&CALL, sql, 400, -32020, "mcp-param-region"),
    ]);
}

#[test]
fn methods_that_the_modern_era_retired_are_not_found() {
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "tasks/list",
    ] {
        let list = [
            ("mcp-protocol-version", MODERN),
            ("mcp-method", method),
            ("last-event-id", "3"),
        ];

        assert_eq!(
            rejected(&list, &request(method, &meta(MODERN))),
            (404, -32601),
            "{method}"
        );
    }
}

#[test]
fn header_values_are_trimmed_decoded_and_compared_with_the_body() {
    let ok = |name| {
        post(
            &[CALL[0], CALL[1], ("mcp-name", name)],
            &call("add", &json!({})),
            &Dialects::all(),
        )
    };

    assert!(ok("  add  ").is_ok());
    assert!(ok("=?base64?YWRk?=").is_ok());
    for name in ["ADD", "sql", "=?base64?YWR?="] {
        let list = [CALL[0], CALL[1], ("mcp-name", name)];
        assert_eq!(
            rejected(&list, &call("add", &json!({}))),
            (400, -32020),
            "{name}"
        );
    }
}

#[test]
fn params_without_a_name_are_left_to_the_handler() {
    for body in [
        request("tools/call", &meta(MODERN)),
        call("no-such-tool", &json!({"region": "eu"})),
    ] {
        let list = [CALL[0], CALL[1], ("mcp-name", "no-such-tool")];

        assert!(post(&list, &body, &Dialects::all()).is_ok(), "{body}");
    }
}

#[test]
fn a_duplicate_name_is_rejected() {
    let meta = meta(MODERN);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"sql","name":"add","_meta":{meta}}}}}"#
    );

    let rejection = admit(
        &headers(&CALL),
        &body.into(),
        &Dialects::all(),
        &CallerCache::default(),
        &TestCatalog::new(),
    )
    .unwrap_err();

    assert_eq!(rejection.error().code, ErrorCode::INVALID_PARAMS);
    assert_eq!(rejection.id(), Some(&7.into()));
}

#[test]
fn a_malformed_message_is_a_bad_request_with_its_id_if_known() {
    for (body, code, id) in [
        ("{", -32700, None),
        ("", -32700, None),
        ("7", -32600, None),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            -32600,
            None,
        ),
        (r#"{"jsonrpc":"2.0","id":7}"#, -32600, Some(7)),
        (
            r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
            -32600,
            Some(7),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}"#,
            -32600,
            Some(7),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"result":1,"error":2}"#,
            -32600,
            None,
        ),
    ] {
        let rejection = admit(
            &HeaderMap::new(),
            &body.into(),
            &Dialects::all(),
            &CallerCache::default(),
            &TestCatalog::new(),
        );

        let rejection = rejection.unwrap_err();
        assert_eq!(
            (rejection.status().as_u16(), rejection.error().code.0),
            (400, code),
            "{body}"
        );
        assert_eq!(rejection.id(), id.map(RequestId::from).as_ref(), "{body}");
    }
}

/// Returns the header version of an admitted legacy POST, and whether it is a batch.
fn legacy(list: &[(&str, &str)], body: &Value) -> (Option<&'static str>, bool) {
    match post(list, body, &Dialects::all()) {
        Ok(AdmittedPost::Legacy(post)) => (
            post.dialect.map(|dialect| dialect.version),
            matches!(post.messages, PostBody::Batch(_)),
        ),
        other => panic!("{list:?} {body} gave {other:?}"),
    }
}

fn plain(method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"protocolVersion": "2025-06-18"}})
}

fn version(version: &str) -> [(&str, &str); 1] {
    [("mcp-protocol-version", version)]
}

#[test]
fn a_request_without_a_version_in_meta_belongs_to_the_era_of_its_header() {
    for method in ["initialize", "tools/list"] {
        assert_eq!(legacy(&[], &plain(method)), (None, false));
        for known in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            assert_eq!(
                legacy(&version(known), &plain(method)),
                (Some(known), false)
            );
        }
        for modern in [MODERN, "2031-01-01"] {
            assert_eq!(
                rejected(&version(modern), &plain(method)),
                (400, -32602),
                "{method} {modern}"
            );
        }
        for unknown in ["2025-01-01", "1.0", "", "v999.0.0"] {
            let rejection = post(&version(unknown), &plain(method), &Dialects::all()).unwrap_err();
            assert_eq!(
                status_and_code(&rejection, &plain(method)),
                (400, -32600),
                "{method} {unknown}"
            );
        }
    }
}

#[test]
fn the_handshake_may_name_a_legacy_version_that_is_not_served_and_others_may_not() {
    let served = Dialects::only(|row| row.version == "2025-11-25");

    assert!(post(&version("2024-11-05"), &plain("initialize"), &served).is_ok());
    let rejection = post(&version("2024-11-05"), &plain("tools/list"), &served).unwrap_err();
    let message = &rejection.error().message;
    assert_eq!(message, r#"Unsupported protocol version: "2024-11-05""#);
}

#[test]
fn a_repeated_version_header_is_refused_in_every_era() {
    let twice = [("mcp-protocol-version", "2025-11-25"); 2];

    assert_eq!(rejected(&twice, &plain("tools/list")), (400, -32020));
}

#[test]
fn a_version_in_meta_outranks_the_method_and_the_header() {
    let list = [
        ("mcp-protocol-version", "2025-11-25"),
        ("last-event-id", "3"),
    ];

    assert_eq!(
        rejected(&list, &request("initialize", &meta(MODERN))),
        (400, -32020)
    );
    assert_eq!(
        rejected(&[], &request("tools/list", &meta(MODERN))),
        (400, -32020)
    );
}

#[test]
fn a_batch_is_admitted_only_for_the_version_that_has_batches() {
    let batch =
        json!([plain("ping"), {"jsonrpc": "2.0", "method": "notifications/initialized"}, 7]);
    assert_eq!(legacy(&[], &batch), (Some("2025-03-26"), true));
    assert_eq!(
        legacy(&version("2025-03-26"), &batch),
        (Some("2025-03-26"), true)
    );

    for other in [
        "2024-11-05",
        "2025-06-18",
        "2025-11-25",
        MODERN,
        "2031-01-01",
        "x",
    ] {
        assert_eq!(rejected(&version(other), &batch), (400, -32600), "{other}");
    }
    let modern_only = post(&[], &batch, &Dialects::modern()).unwrap_err();
    assert_eq!(status_and_code(&modern_only, &batch), (400, -32600));
}

#[test]
fn a_batch_is_admitted_undecoded_and_may_contain_only_legacy_messages() {
    let decoded = |body: &Value| match post(&[], body, &Dialects::all()) {
        Ok(AdmittedPost::Legacy(post)) => match post.messages {
            PostBody::Batch(batch) => batch.decode(10),
            PostBody::One(message) => panic!("one message: {message:?}"),
        },
        other => panic!("{body} gave {other:?}"),
    };
    let marked = json!([plain("ping"), request("tools/list", &meta(MODERN))]);

    assert_eq!(decoded(&json!([plain("ping"), 7])).unwrap().len(), 2);
    let refused = HttpRejection::from(decoded(&marked).unwrap_err());
    assert_eq!(status_and_code(&refused, &marked), (400, -32600));
}

#[test]
fn a_response_is_admitted_only_in_the_legacy_era() {
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    assert_eq!(legacy(&[], &response), (None, false));
    assert_eq!(
        legacy(&version("2025-11-25"), &response),
        (Some("2025-11-25"), false)
    );

    for (list, served) in [
        (&[][..], Dialects::modern()),
        (&version(MODERN), Dialects::all()),
    ] {
        let rejection = post(list, &response, &served).unwrap_err();
        assert_eq!(
            (rejection.status().as_u16(), rejection.error().code.0),
            (400, -32600)
        );
        let message = &rejection.error().message;
        assert!(message.starts_with("unexpected response"), "{message}");
        assert_eq!(rejection.id(), None, "it is the id of a request of ours");
    }
}

#[test]
fn a_notification_belongs_to_the_era_of_its_meta_or_its_header() {
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let marked =
        json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": meta(MODERN)}});
    for served in [Dialects::all(), Dialects::modern()] {
        for (list, body) in [
            (&version(MODERN)[..], &cancel),
            (&[], &marked),
            (&version("2025-11-25"), &marked),
        ] {
            let admitted = post(list, body, &served);
            assert!(
                matches!(admitted, Ok(AdmittedPost::Notification(_))),
                "{list:?} {body} {admitted:?}"
            );
        }
    }
    assert_eq!(legacy(&[], &cancel), (None, false));
    assert_eq!(
        legacy(&version("2025-11-25"), &cancel),
        (Some("2025-11-25"), false)
    );
}

#[test]
fn a_server_without_a_legacy_era_lists_its_versions() {
    let handshake = post(&[], &plain("initialize"), &Dialects::modern()).unwrap_err();
    assert_eq!(
        status_and_code(&handshake, &plain("initialize")),
        (400, -32022)
    );
    let data: Value = handshake.error().data.as_ref().unwrap().decode().unwrap();
    assert_eq!(
        data,
        json!({"supported": [MODERN], "requested": "2025-06-18"})
    );

    for list in [&[][..], &version("2025-11-25"), &version("x")] {
        for body in [
            plain("tools/list"),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        ] {
            let rejection = post(list, &body, &Dialects::modern()).unwrap_err();
            assert_eq!(
                status_and_code(&rejection, &body),
                (400, -32020),
                "{list:?} {body}"
            );
        }
    }
}

fn admit_head_with(
    method: &str,
    list: &[(&str, &str)],
    served: &Dialects,
) -> Result<AdmittedHead, HttpRejection> {
    admit_head_at("/mcp?a=b", method, list, served)
}

fn admit_head_at(
    uri: &str,
    method: &str,
    list: &[(&str, &str)],
    served: &Dialects,
) -> Result<AdmittedHead, HttpRejection> {
    let (mut head, ()) = HttpRequest::builder()
        .method(method)
        .uri(uri)
        .body(())
        .unwrap()
        .into_parts();
    head.headers = headers(list);
    let paths = EndpointPaths::only(["/mcp"]);
    admit_head(&head, &SourcePolicy::loopback(), &paths, served)
}

#[test]
fn other_paths_are_not_found_whatever_the_method() {
    let own = [("host", "localhost"), ("accept", "text/event-stream")];
    let foreign = [("host", "evil.example")];
    for method in ["GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT"] {
        for uri in ["/", "/mcp/more", "/.well-known/oauth-protected-resource"] {
            for served in [Dialects::all(), Dialects::modern()] {
                let refused = admit_head_at(uri, method, &own, &served).unwrap_err();

                assert_eq!(refused.status(), 404, "{method} {uri}");
            }
        }
        let refused = admit_head_at("/", method, &foreign, &Dialects::all()).unwrap_err();
        assert_eq!(refused.status(), 403, "{method}");
    }
}

/// Each request fails its own check and all later ones.
#[test]
fn the_head_is_checked_before_the_body() {
    let all = Dialects::all();
    let status = |method, list: &[_]| {
        admit_head_with(method, list, &all)
            .unwrap_err()
            .status()
            .as_u16()
    };
    let host = ("host", "localhost");
    let html = ("accept", "text/html");

    assert_eq!(status("PUT", &[("host", "evil.example"), html]), 403);
    assert_eq!(
        status("PUT", &[host, ("origin", "http://evil.example"), html]),
        403
    );
    assert_eq!(status("PUT", &[host, html]), 405);
    assert_eq!(status("POST", &[host, html]), 415);
    assert_eq!(
        status("POST", &[host, html, ("content-type", "application/json")]),
        406
    );
    let accepts = AcceptedTypes {
        json: true,
        events: true,
    };
    let admitted = admit_head_with("POST", &[host, ("content-type", "application/json")], &all);
    assert_eq!(admitted, Ok(AdmittedHead::Post(accepts)));
}

#[test]
fn get_and_delete_are_admitted_only_in_the_legacy_era() {
    let host = [("host", "localhost")];
    for method in ["GET", "DELETE"] {
        assert_eq!(
            admit_head_with(method, &host, &Dialects::all()),
            Ok(AdmittedHead::LegacyMethod)
        );

        let rejection = admit_head_with(method, &host, &Dialects::modern()).unwrap_err();

        assert_eq!(rejection.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(
            rejection.header(),
            Some((ALLOW, HeaderValue::from_static("POST")))
        );
    }
}

#[test]
fn a_preflight_is_admitted_after_source_and_path_in_every_era() {
    let method = ("access-control-request-method", "POST");
    let page = ("origin", "http://localhost:6274");
    let preflight = [("host", "localhost"), page, method];
    let status = |uri: &str, list: &[_]| {
        let refused = admit_head_at(uri, "OPTIONS", list, &Dialects::all());
        refused.unwrap_err().status().as_u16()
    };

    for served in [Dialects::all(), Dialects::modern()] {
        let admitted = admit_head_with("OPTIONS", &preflight, &served);
        assert_eq!(admitted, Ok(AdmittedHead::Preflight));
    }
    assert_eq!(status("/other", &preflight), 404);
    let foreign = ("origin", "https://evil.example");
    assert_eq!(
        status("/mcp", &[("host", "localhost"), foreign, method]),
        403
    );
    assert_eq!(status("/mcp", &[("host", "localhost"), method]), 405);
    assert_eq!(status("/mcp", &[("host", "localhost"), page]), 405);
}

#[test]
fn a_rejection_has_a_body_with_the_error() {
    let rejection = post(&[], &request("tools/list", &meta(MODERN)), &Dialects::all()).unwrap_err();

    let frame = Message::from(rejection.into_response()).to_frame();

    let expected = br#"{"jsonrpc":"2.0","id":"a","error":{"code":-32020,"message":"`mcp-protocol-version` is missing"}}"#;
    assert_eq!(&*frame, expected);
}
