//! Both forms of tasks, as they are converted.

use serde_json::Value;

use super::*;

fn json(value: Value) -> Json {
    value.into()
}

fn value(json: &Json) -> Value {
    json.decode().unwrap()
}

fn dialect(version: &str) -> &'static Dialect {
    Dialect::of(version).unwrap()
}

fn offer(capabilities: &Value, server: &str, client: &str) -> Value {
    offer_with(ParkedCallForm::Retry, capabilities, server, client)
}

fn offer_with(form: ParkedCallForm, capabilities: &Value, server: &str, client: &str) -> Value {
    let discovered = json(json!({"capabilities": capabilities, "x": 1}));
    let mut object = Object::read(&discovered).unwrap();
    convert_offer(&mut object, dialect(server), dialect(client), form);
    let converted = value(&object.to_json());
    assert_eq!(converted["x"], 1);
    converted["capabilities"].clone()
}

#[test]
fn a_client_is_offered_tasks_in_the_form_of_its_version() {
    let (modern, legacy, old) = ("2026-07-28", "2025-11-25", "2025-06-18");
    let core = json!({"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}, "tools": {}});
    let extension = json!({"extensions": {EXTENSION: {}}, "tools": {}});
    let other = json!({"extensions": {EXTENSION: {}, "com.example/x": {}}});
    let converted =
        json!({"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}});

    assert_eq!(offer(&core, legacy, modern), extension);
    assert_eq!(offer(&extension, modern, legacy), converted);
    assert_eq!(
        offer(&other, modern, old),
        json!({"extensions": {"com.example/x": {}}})
    );
    assert_eq!(offer(&core, legacy, old), json!({"tools": {}}));
    assert_eq!(offer(&core, legacy, legacy), core);
    // Tasks that are not about tools have no other form.
    assert_eq!(
        offer(&json!({"tasks": {"list": {}}}), legacy, modern),
        json!({})
    );
}

#[test]
fn a_modern_client_is_offered_tasks_of_any_legacy_server_if_parked_calls_are_tasks() {
    let (modern, legacy, old) = ("2026-07-28", "2025-11-25", "2025-06-18");
    let (none, extension) = (json!({}), json!({"extensions": {EXTENSION: {}}}));
    let offer = |server, client| offer_with(ParkedCallForm::Task, &none, server, client);

    assert_eq!(offer(legacy, modern), extension);
    assert_eq!(offer(old, modern), extension);
    assert_eq!(offer(modern, modern), none);
    assert_eq!(offer(modern, legacy), none);
    assert_eq!(offer(old, legacy), none);
}

#[test]
fn a_created_task_is_converted_with_members_that_are_not_known() {
    let task =
        json!({"taskId": "7", "status": "working", "ttl": 60_000, "pollInterval": 5, "x": [1]});
    let created = json(json!({"task": task, "_meta": {"m": 1}}));
    let modern = json!({
        "resultType": "task", "taskId": "7", "status": "working", "ttlMs": 60_000, "pollIntervalMs": 5,
        "x": [1], "_meta": {"m": 1},
    });

    let (id, converted) = created_to_modern(&created).unwrap();
    let (same_id, back) = created_to_legacy(&converted).unwrap();

    assert_eq!((&*id, &*same_id), ("7", "7"));
    assert_eq!(value(&converted), modern);
    assert_eq!(value(&back), value(&created));
}

#[test]
fn a_result_that_is_no_task_is_not_converted() {
    for result in [
        json!({"content": []}),
        json!({"task": 1}),
        json!({"task": {}}),
    ] {
        assert_eq!(created_to_modern(&json(result)), None);
    }
    for result in [
        json!({"content": []}),
        json!({"resultType": "complete", "taskId": "7"}),
    ] {
        assert_eq!(created_to_legacy(&json(result)), None);
    }
}

#[test]
fn a_finished_task_has_its_result_or_its_error() {
    let task = json(json!({"taskId": "7", "status": "failed"}));
    let result =
        json!({"content": [], "isError": true, "_meta": {meta_key::RELATED_TASK: {"taskId": "7"}}});
    let error = RpcError::new(bowline::ErrorCode(-5), "no");

    let with_result = value(&finished_to_modern(&task, Ok(json(result))));
    let with_error = value(&finished_to_modern(&task, Err(error)));

    let expected = json!({
        "taskId": "7", "status": "completed", "ttlMs": null, "result": {"content": [], "isError": true},
    });
    assert_eq!(with_result, expected);
    assert_eq!(with_error["status"], "failed");
    assert_eq!(with_error["error"], json!({"code": -5, "message": "no"}));
    // And back: a tool that returned an error has failed in 2025-11-25.
    let back = json!({"taskId": "7", "status": "failed", "ttl": null});
    assert_eq!(value(&to_legacy(&json(with_result))), back);
    assert_eq!(value(&to_legacy(&json(with_error))), back);
}

#[test]
fn a_task_without_a_question_that_can_be_answered_works() {
    let task = json(json!({"taskId": "7", "status": "input_required"}));
    let question = ("k".to_owned(), json(json!({"method": "roots/list"})));

    let asking = asking_to_modern(&task, std::slice::from_ref(&question));

    assert_eq!(value(&asking)["status"], "input_required");
    assert_eq!(questions(&asking), [question]);
    let working = value(&asking_to_modern(&task, &[]));
    assert_eq!(
        (&working["status"], working.get("inputRequests")),
        (&json!("working"), None)
    );
}

#[test]
fn a_result_names_its_task_and_has_no_structured_content_that_2025_11_25_lacks() {
    let result = json!({"resultType": "complete", "content": [], "structuredContent": [1], "_meta": {"m": 1}});

    let converted = value(&result_to_legacy(&json(result), "7"));

    let expected = json!({
        "content": [{"type": "text", "text": "[1]"}],
        "_meta": {"m": 1, meta_key::RELATED_TASK: {"taskId": "7"}},
    });
    assert_eq!(converted, expected);
    assert_eq!(related_task(&json(converted)).as_deref(), Some("7"));
}

#[test]
fn the_task_support_of_tools_is_read_and_added() {
    let page = json!({"tools": [
        {"name": "a", "execution": {"taskSupport": "required"}, "x": 1},
        {"name": "b", "execution": {"taskSupport": "forbidden"}},
        {"name": "c"},
    ], "nextCursor": "n"});

    assert_eq!(
        task_support(&json(page.clone())),
        [("a".to_owned(), TaskSupport::Required)]
    );
    let mut expected = page.clone();
    expected["tools"][2]["execution"] = json!({"taskSupport": "optional"});
    assert_eq!(value(&with_task_support(&json(page))), expected);
}

#[test]
fn a_message_of_a_server_that_is_no_object_stays_as_it_is() {
    for text in ["1", "[]", "null", r#"{"_meta":1}"#] {
        let json = Json::parse(text).unwrap();
        assert_eq!(without_related_task(&json), json);
        assert_eq!(related_task(&json), None);
        assert!(status(&json).is_err());
        assert_eq!(questions(&json), []);
        assert_eq!(task_support(&json), []);
    }
}
