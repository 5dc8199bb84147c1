//! Tests of `seal` and `unseal` in each era.

use bowline_types::{ErrorCode, RpcError, meta_key};

use super::*;

fn sealed(dialect: &'static Dialect, method: &'static str, result: Value) -> Outcome {
    seal(&Seal::new(dialect, method), &server(), Ok(result.into()))
}

fn unsealed(
    dialect: &'static Dialect,
    method: &str,
    result: Value,
) -> Result<Unsealed, ResultViolation> {
    unseal(method, dialect, Ok(result.into()))
}

fn stamped_by_server() -> Value {
    json!({(meta_key::SERVER_INFO): {"name": "s", "version": "2"}})
}

/// BASE-7: "Return `result` as a JSON object that carries a string `resultType`"; META-13: "Stamp
/// `serverInfo` into every result's `_meta`".
#[test]
fn a_modern_result_has_a_result_type_and_server_info() {
    let result = sealed(Dialect::LATEST, "tools/call", json!({"content": []})).unwrap();

    assert_eq!(
        value(&result),
        json!({"content": [], "resultType": "complete", "_meta": stamped_by_server()})
    );
}

/// CACHE-1: "Put `ttlMs` (integer ≥ 0) and `cacheScope` on every `complete` result of […]; never on
/// `input_required`".
#[test]
fn a_cacheable_result_without_hints_gets_zero_ttl_and_private_scope() {
    for method in Dialect::LATEST.cacheable {
        let bare = sealed(Dialect::LATEST, method, json!({})).unwrap();
        let hinted = json!({"ttlMs": 5, "cacheScope": "public"});
        let hinted = sealed(Dialect::LATEST, method, hinted).unwrap();

        assert_eq!(value(&bare)["ttlMs"], 0, "{method}");
        assert_eq!(value(&bare)["cacheScope"], "private", "{method}");
        assert_eq!(value(&hinted)["ttlMs"], 5, "{method}");
        assert_eq!(value(&hinted)["cacheScope"], "public", "{method}");
    }
    let other = sealed(Dialect::LATEST, "prompts/get", json!({})).unwrap();
    assert!(value(&other).get("ttlMs").is_none());
}

#[test]
fn hints_behind_the_other_members_are_found() {
    let text = r#"{"resultType":"complete","_meta":{},"ttlMs":5,"cacheScope":"public"}"#;
    let seal_form = Seal::new(Dialect::LATEST, "tools/list");

    let result = seal(&seal_form, &server(), Ok(Json::from_static(text))).unwrap();

    for member in ["resultType", "ttlMs", "cacheScope", "_meta"] {
        let count = result.as_str().matches(&format!("\"{member}\"")).count();
        assert_eq!(count, 1, "{member} in {result}");
    }
    assert_eq!(value(&result)["cacheScope"], "public");
}

#[test]
fn an_input_required_result_has_no_cache_hints() {
    let ask = json!({"resultType": "input_required", "requestState": "x", "ttlMs": 5});

    let result = sealed(Dialect::LATEST, "resources/read", ask).unwrap();

    assert_eq!(
        value(&result),
        json!({"resultType": "input_required", "requestState": "x", "_meta": stamped_by_server()})
    );
}

#[test]
fn a_result_that_is_not_cacheable_keeps_members_with_the_names_of_hints() {
    let own = json!({"resultType": "task", "ttlMs": 5, "cacheScope": 1});
    let mut with_meta = own.clone();
    with_meta["_meta"] = json!({"own": 1});

    for result in [own, with_meta] {
        let sealed = sealed(Dialect::LATEST, "tools/call", result).unwrap();

        assert_eq!(value(&sealed)["ttlMs"], 5);
        assert_eq!(value(&sealed)["cacheScope"], 1);
    }
}

#[test]
fn a_complete_result_type_may_contain_escapes() {
    for dialect in [Dialect::LATEST, Dialect::LATEST_LEGACY] {
        let result = Json::parse(r#"{"resultType":"comple\u0074e","contents":[]}"#).unwrap();
        let form = Seal::new(dialect, "resources/read");

        let sealed = seal(&form, &server(), Ok(result)).unwrap();

        assert_eq!(value(&sealed)["contents"], json!([]), "{dialect}");
    }
}

#[test]
fn server_info_of_the_responder_is_kept() {
    let meta = json!({(meta_key::SERVER_INFO): {"name": "behind", "version": "0"}, "own": 1});

    let result = sealed(Dialect::LATEST, "tools/call", json!({"_meta": meta})).unwrap();

    assert_eq!(value(&result)["_meta"], meta);
}

#[test]
fn other_members_of_meta_are_kept() {
    let meta = json!({"own": 1});

    let result = sealed(Dialect::LATEST, "tools/list", json!({"_meta": meta})).unwrap();

    let mut expected = stamped_by_server();
    expected["own"] = json!(1);
    assert_eq!(value(&result)["_meta"], expected);
}

#[test]
fn a_result_without_missing_members_is_not_copied() {
    let (meta, list) = (stamped_by_server(), json!({"tools": [{"name": "a"}]}));
    let complete_first = format!(
        r#"{{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{meta},"tools":[]}}"#
    );
    for (dialect, method, text) in [
        (Dialect::LATEST, "tools/list", complete_first),
        (Dialect::LATEST_LEGACY, "com.example/list", list.to_string()),
    ] {
        let result = Json::parse(text).unwrap();

        let sealed = seal(&Seal::new(dialect, method), &server(), Ok(result.clone()));

        let sealed = sealed.unwrap();
        assert_eq!(sealed.as_bytes().as_ptr(), result.as_bytes().as_ptr());
        assert_eq!(sealed, result);
    }
}

/// LDUAL-1: "for legacy strip `resultType`,`ttlMs`,`cacheScope`, modern-only `_meta`".
#[test]
fn a_legacy_result_has_no_modern_members() {
    for dialect in Dialects::legacy().iter() {
        let modern = json!({
            "resultType": "complete", "contents": [], "ttlMs": 1, "cacheScope": "public",
            "_meta": stamped_by_server(),
        });
        let mut with_own_meta = modern.clone();
        with_own_meta["_meta"]["own"] = json!(1);

        let bare = sealed(dialect, "resources/read", modern).unwrap();
        let with_own_meta = sealed(dialect, "resources/read", with_own_meta).unwrap();

        assert_eq!(value(&bare), json!({"contents": []}), "{dialect}");
        assert_eq!(
            value(&with_own_meta),
            json!({"contents": [], "_meta": {"own": 1}}),
            "{dialect}"
        );
    }
}

/// LDUAL-2: "Non-object `structuredContent`/non-object `outputSchema` have no legacy form".
#[test]
fn structured_content_is_sent_if_the_version_defines_it() {
    let table = [
        ("2024-11-05", false, false),
        ("2025-03-26", false, false),
        ("2025-06-18", true, false),
        ("2025-11-25", true, false),
        ("2026-07-28", true, true),
    ];
    for (version, object, other) in table {
        let dialect = Dialect::of(version).unwrap();
        let survives = |content: Value| {
            let result = json!({"content": [], "structuredContent": content});
            let result = sealed(dialect, "tools/call", result).unwrap();
            value(&result).get("structuredContent").is_some()
        };

        assert_eq!(survives(json!({"a": 1})), object, "{version}");
        for content in [json!([1]), json!(1), json!("a"), json!(null)] {
            assert_eq!(survives(content.clone()), other, "{version} {content}");
        }
    }
}

#[test]
fn an_output_schema_that_is_not_an_object_is_removed_for_legacy_clients() {
    let object = json!({"name": "o", "outputSchema": {"type": "object"}});
    let none = json!({"name": "n"});
    let list = json!({"tools": [object, {"name": "a", "outputSchema": {"type": "array"}}, none]});

    let legacy = sealed(Dialect::LATEST_LEGACY, "tools/list", list.clone()).unwrap();
    let modern = sealed(Dialect::LATEST, "tools/list", list.clone()).unwrap();

    assert_eq!(
        value(&legacy),
        json!({"tools": [object, {"name": "a"}, none]})
    );
    assert_eq!(value(&modern)["tools"], list["tools"]);
}

#[test]
fn output_schemas_are_removed_if_structured_content_is_not_defined() {
    for (version, promised) in [("2025-03-26", false), ("2025-06-18", true)] {
        let dialect = Dialect::of(version).unwrap();
        let list = json!({"tools": [{"name": "o", "outputSchema": {"type": "object"}}]});

        let result = sealed(dialect, "tools/list", list).unwrap();

        let tool = &value(&result)["tools"][0];
        assert_eq!(tool.get("outputSchema").is_some(), promised, "{version}");
        assert_eq!(tool["name"], "o", "{version}");
    }
}

#[test]
fn completions_are_declared_if_the_version_defines_the_capability() {
    let table = [
        ("2024-11-05", false),
        ("2025-03-26", true),
        ("2025-11-25", true),
        ("2026-07-28", true),
    ];
    for (version, declared) in table {
        let dialect = Dialect::of(version).unwrap();
        let discovery = json!({"capabilities": {"completions": {}, "tools": {}}});

        let result = sealed(dialect, "server/discover", discovery).unwrap();

        let capabilities = &value(&result)["capabilities"];
        assert_eq!(
            capabilities.get("completions").is_some(),
            declared,
            "{version}"
        );
        assert_eq!(capabilities["tools"], json!({}), "{version}");
    }
}

#[test]
fn a_result_that_cannot_be_expressed_becomes_an_internal_error() {
    let ask = json!({"resultType": "input_required", "requestState": "x"});
    let mut table = vec![
        (Dialect::LATEST, "tools/call", json!([])),
        (Dialect::LATEST, "tools/call", json!({"resultType": 1})),
        (Dialect::LATEST, "tools/list", ask.clone()),
    ];
    for dialect in Dialects::legacy().iter() {
        table.push((dialect, "tools/call", json!("text")));
        table.push((dialect, "tools/call", ask.clone()));
        table.push((dialect, "tools/call", json!({"resultType": "task"})));
    }
    for (dialect, method, result) in table {
        let error = sealed(dialect, method, result.clone()).unwrap_err();

        assert_eq!(error.code, ErrorCode::INTERNAL_ERROR, "{dialect} {result}");
    }
}

/// LDUAL-6: "Resource-not-found: -32602 modern, -32002 legacy"; ERR-4: "Emit -32002 or -32042 under this
/// revision": a modern server MUST NOT.
#[test]
fn an_error_code_is_mapped_to_one_of_the_dialect() {
    let table = [
        (-32002, -32602, -32002),
        (-32020, -32020, -32602),
        (-32021, -32021, -32602),
        (-32022, -32022, -32602),
        (-32601, -32601, -32601),
        (-32602, -32602, -32602),
        (-32603, -32603, -32603),
        (-32001, -32001, -32001),
        // Undefined codes in the reserved range, which 2026-07-28 forbids.
        (-32023, -32603, -32023),
        (-32099, -32603, -32099),
        (7, 7, 7),
        (-32800, -32800, -32800),
    ];
    for (inside, modern, legacy) in table {
        for dialect in Dialect::ALL {
            let error = RpcError::new(ErrorCode(inside), "no").with_data(json!({"uri": "a:b"}));

            let sealed = seal(
                &Seal::new(dialect, "resources/read"),
                &server(),
                Err(error.clone()),
            );

            let expected = if dialect.is_modern() { modern } else { legacy };
            let sealed = sealed.unwrap_err();
            assert_eq!(sealed.code, ErrorCode(expected), "{dialect} {inside}");
            assert_eq!((sealed.message, sealed.data), (error.message, error.data));
        }
    }
}

/// Only 2025-11-25 defines `-32042`.
#[test]
fn a_code_that_one_version_defines_is_sent_in_that_version_only() {
    for dialect in Dialect::ALL {
        let error = RpcError::new(ErrorCode::URL_ELICITATION_REQUIRED, "no");

        let sealed = seal(&Seal::new(dialect, "tools/call"), &server(), Err(error));

        let code = sealed.unwrap_err().code.0;
        let expected = if dialect.version == "2025-11-25" {
            -32042
        } else {
            -32603
        };
        assert_eq!(code, expected, "{dialect}");
    }
}

/// BASE-8: "Interpret a result with no `resultType` as `complete`"; BASE-10: "extensions MAY add values".
#[test]
fn a_modern_result_is_classified_by_its_result_type() {
    let result = |of: Value| json!({"resultType": of, "x": 1});
    let extension = |of: &str| Unsealed::Extension {
        result_type: of.into(),
        result: result(json!(of)).into(),
    };
    let ask = result(json!("input_required"));
    let table = [
        (
            json!({"x": 1}),
            Ok(Unsealed::Complete(json!({"x": 1}).into())),
        ),
        (
            result(json!("complete")),
            Ok(Unsealed::Complete(result(json!("complete")).into())),
        ),
        (ask.clone(), Ok(Unsealed::InputRequired(ask.clone().into()))),
        (result(json!("task")), Ok(extension("task"))),
        (result(json!("")), Ok(extension(""))),
        (result(json!(1)), Err(ResultViolation::InvalidResultType)),
        (json!([]), Err(ResultViolation::ResultIsNotAnObject)),
        (json!(null), Err(ResultViolation::ResultIsNotAnObject)),
    ];
    for (result, expected) in table {
        let unsealed = unsealed(Dialect::LATEST, "tools/call", result.clone());

        assert_eq!(unsealed, expected, "{result}");
    }
    assert_eq!(
        unsealed(Dialect::LATEST, "tools/list", ask),
        Err(ResultViolation::InputRequiredNotAllowed(
            "tools/list".into()
        ))
    );
}

#[test]
fn a_legacy_result_loses_the_members_that_only_modern_results_have() {
    for dialect in Dialects::legacy().iter() {
        let unchanged = json!({"content": [], "_meta": {"a": 1}});
        let mut result = unchanged.clone();
        result["resultType"] = json!("input_required");
        result["ttlMs"] = json!(60_000);
        result["cacheScope"] = json!("public");

        let complete = unsealed(dialect, "tools/call", result);

        let unchanged = Json::from(unchanged);
        assert_eq!(complete, Ok(Unsealed::Complete(unchanged.clone())));
        let again = unseal("tools/call", dialect, Ok(unchanged.clone()));
        assert_eq!(again, Ok(Unsealed::Complete(unchanged)));
        assert_eq!(
            unsealed(dialect, "tools/call", json!(3)),
            Err(ResultViolation::ResultIsNotAnObject)
        );
    }
}

#[test]
fn an_error_of_the_peer_is_unsealed_unchanged_in_every_dialect() {
    for dialect in Dialect::ALL {
        for code in [-32002, -32603, -32042, -32020, -32022] {
            let error = RpcError::new(ErrorCode(code), "gone").with_data(json!({"uri": "a:b"}));

            let unsealed = unseal("resources/read", dialect, Err(error.clone()));

            assert_eq!(unsealed, Ok(Unsealed::Failed(error)), "{dialect}");
        }
    }
}

#[test]
fn a_missing_resource_has_the_same_code_inside_in_every_dialect() {
    let about_uri = Some(json!({"uri": "a:b"}));
    let failed = |method, dialect, code, data: &Option<Value>| {
        let mut error = RpcError::new(ErrorCode(code), "gone");
        error.data = data.clone().map(Json::from);
        match unseal(method, dialect, Err(error)) {
            Ok(Unsealed::Failed(error)) => error.code.0,
            other => panic!("expected an error, got {other:?}"),
        }
    };
    for dialect in Dialect::ALL {
        let code = dialect.resource_not_found_code.0;
        assert_eq!(
            failed("resources/read", dialect, code, &about_uri),
            -32002,
            "{dialect}"
        );
        // Other meanings of the code.
        for (method, data) in [
            ("resources/read", &None),
            ("resources/read", &Some(json!({"cursor": 1}))),
            ("resources/read", &Some(json!("a:b"))),
            ("tools/call", &about_uri),
        ] {
            assert_eq!(
                failed(method, dialect, code, data),
                code,
                "{dialect} {method} {data:?}"
            );
        }
    }
    let legacy = failed("resources/read", Dialect::LATEST_LEGACY, -32602, &about_uri);
    assert_eq!(legacy, -32602);
}

/// LINI-4: a client should "disconnect if it cannot speak the answer"; LINI-11: "must never offer or accept
/// `2026-07-28` through `initialize`".
#[test]
fn an_invalid_initialize_result_is_a_violation() {
    let good = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "2"},
    });
    let with = |key: &str, value: Value| {
        let mut answer = good.clone();
        answer[key] = value;
        answer
    };
    let table = [
        (
            with("protocolVersion", json!("2026-07-28")),
            ResultViolation::UnsupportedVersion("2026-07-28".into()),
        ),
        (
            with("protocolVersion", json!("2025-01-01")),
            ResultViolation::UnsupportedVersion("2025-01-01".into()),
        ),
        (
            with("protocolVersion", json!(null)),
            ResultViolation::InvalidInitializeResult("protocolVersion"),
        ),
        (
            with("capabilities", json!([])),
            ResultViolation::InvalidInitializeResult("capabilities"),
        ),
        (
            with("serverInfo", json!("s")),
            ResultViolation::InvalidInitializeResult("serverInfo"),
        ),
        (
            json!({}),
            ResultViolation::InvalidInitializeResult("protocolVersion"),
        ),
    ];
    for (answer, violation) in table {
        let unsealed = unsealed(Dialect::LATEST_LEGACY, "server/discover", answer.clone());

        assert_eq!(unsealed, Err(violation), "{answer}");
    }
    assert!(unsealed(Dialect::LATEST_LEGACY, "server/discover", good).is_ok());
}
