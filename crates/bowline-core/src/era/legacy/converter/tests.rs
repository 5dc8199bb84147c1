//! Tests of what is removed and converted for each legacy version.

use std::sync::Arc;

use super::*;
use crate::era::{Caller, Request, RequestConverter, Seal, convert_notification, seal, stamp};
use crate::{Notification, Outcome};

const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn dialect(version: &str) -> &'static Dialect {
    Dialect::of(version).unwrap()
}

fn sealed(version: &str, method: &'static str, result: Value) -> Outcome {
    let server = json!({"name": "s", "version": "2"});
    let form = Seal::new(dialect(version), method);
    seal(&form, &server.into(), Ok(result.into()))
}

fn result(version: &str, method: &'static str, result: Value) -> Value {
    sealed(version, method, result).unwrap().decode().unwrap()
}

/// Returns the params of a stamped request.
fn params(version: &str, method: &'static str, params: Value) -> Value {
    let caller = Arc::new(Caller::new(dialect(version)));
    let request = Request::new(method, Json::from(params), caller);
    stamp(&request).params.unwrap().decode().unwrap()
}

fn names(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn a_definition_has_the_members_of_its_version() {
    let tool = json!({
        "name": "t", "title": "T", "icons": [], "inputSchema": {}, "annotations": {}, "_meta": {"a": 1},
        "outputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"},
    });
    let resource = json!({
        "uri": "u:r", "name": "r", "title": "R", "icons": [], "annotations": {}, "_meta": {"a": 1},
    });
    let first = ["inputSchema", "name"];
    let second = ["annotations", "inputSchema", "name"];
    let third = [
        "_meta",
        "annotations",
        "inputSchema",
        "name",
        "outputSchema",
        "title",
    ];
    let fourth = [
        "_meta",
        "annotations",
        "execution",
        "icons",
        "inputSchema",
        "name",
        "outputSchema",
        "title",
    ];
    let tools = [&first[..], &second, &third, &fourth];
    let plain = ["annotations", "name", "uri"];
    let titled = ["_meta", "annotations", "name", "title", "uri"];
    let all = ["_meta", "annotations", "icons", "name", "title", "uri"];
    let resources = [&plain[..], &plain, &titled, &all];

    for (at, version) in VERSIONS.into_iter().enumerate() {
        let list = result(version, "tools/list", json!({"tools": [tool]}));
        assert_eq!(names(&list["tools"][0]), tools[at], "{version}");
        let list = result(version, "resources/list", json!({"resources": [resource]}));
        assert_eq!(names(&list["resources"][0]), resources[at], "{version}");
        let templates = json!({"resourceTemplates": [resource]});
        let list = result(version, "resources/templates/list", templates);
        assert_eq!(
            names(&list["resourceTemplates"][0]),
            resources[at],
            "{version}"
        );
    }
}

#[test]
fn a_single_undefined_member_is_removed() {
    let tool = json!({"name": "t", "inputSchema": {}, "annotations": {}});
    let prompt = json!({"name": "p", "arguments": [{"name": "a", "title": "A"}]});

    let tools = result("2024-11-05", "tools/list", json!({"tools": [tool]}));
    let prompts = result("2024-11-05", "prompts/list", json!({"prompts": [prompt]}));

    assert_eq!(names(&tools["tools"][0]), ["inputSchema", "name"]);
    assert_eq!(prompts["prompts"][0]["arguments"], json!([{"name": "a"}]));
}

#[test]
fn prompt_arguments_have_titles_in_the_versions_that_define_them() {
    let prompt = json!({"name": "p", "title": "P", "arguments": [{"name": "a", "title": "A"}]});

    for version in VERSIONS {
        let list = result(version, "prompts/list", json!({"prompts": [prompt]}));
        let prompt = &list["prompts"][0];

        let has_titles = version >= "2025-06-18";
        assert_eq!(prompt.get("title").is_some(), has_titles, "{version}");
        let argument = &prompt["arguments"][0];
        assert_eq!(argument.get("title").is_some(), has_titles, "{version}");
        assert_eq!(argument["name"], "a");
    }
}

#[test]
fn an_undefined_content_block_becomes_text() {
    let link = json!({"type": "resource_link", "name": "n", "title": "Notes", "uri": "file:///n"});
    let audio = json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"});
    let text = json!({"type": "text", "text": "t"});
    let link_text = json!({"type": "text", "text": "Notes: file:///n"});
    let audio_text = json!({
        "type": "text",
        "text": "[audio of type audio/wav, which this protocol version does not support]",
    });

    for (version, expected) in [
        ("2024-11-05", json!([text, link_text, audio_text])),
        ("2025-03-26", json!([text, link_text, audio])),
        ("2025-06-18", json!([text, link, audio])),
        ("2025-11-25", json!([text, link, audio])),
    ] {
        let content = json!([text, link, audio]);
        let called = result(version, "tools/call", json!({"content": content}));
        let messages = content.as_array().unwrap().iter();
        let messages: Vec<_> = messages
            .map(|block| json!({"role": "user", "content": block}))
            .collect();
        let got = result(version, "prompts/get", json!({"messages": messages}));

        assert_eq!(called["content"], expected, "{version}");
        let got = got["messages"].as_array().unwrap().iter();
        let got: Vec<_> = got.map(|message| message["content"].clone()).collect();
        assert_eq!(Value::from(got), expected, "{version}");
    }
}

#[test]
fn structured_content_becomes_text_if_there_is_no_other_content() {
    for (version, content) in [
        ("2025-03-26", json!([{"type": "text", "text": "{\"a\":1}"}])),
        ("2025-06-18", json!([])),
    ] {
        let only = json!({"content": [], "structuredContent": {"a": 1}});

        assert_eq!(
            result(version, "tools/call", only)["content"],
            content,
            "{version}"
        );
    }
    let said = json!({"content": [{"type": "text", "text": "one"}], "structuredContent": 1});
    let said = result("2025-11-25", "tools/call", said);
    assert_eq!(said, json!({"content": [{"type": "text", "text": "one"}]}));
}

#[test]
fn sampling_messages_are_split_into_single_blocks_for_old_versions() {
    let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let messages = json!({"messages": [
        {"role": "user", "content": blocks}, {"role": "assistant", "content": blocks[0]},
    ]});
    let apart = json!([
        {"role": "user", "content": blocks[0]},
        {"role": "user", "content": blocks[1]},
        {"role": "assistant", "content": blocks[0]},
    ]);

    for version in VERSIONS {
        let sent = params(version, "sampling/createMessage", messages.clone());

        let expected = if version == "2025-11-25" {
            &messages["messages"]
        } else {
            &apart
        };
        assert_eq!(sent["messages"], *expected, "{version}");
    }
}

#[test]
fn lost_structured_content_becomes_text_however_empty_content_is_written() {
    for content in ["\"content\": [ \n ],", ""] {
        let text = format!(r#"{{{content} "structuredContent": {{"a": 1.50}}}}"#);
        let form = Seal::new(dialect("2025-03-26"), "tools/call");
        let written = Json::parse(text.clone()).unwrap();
        let result = seal(&form, &Json::empty_object(), Ok(written)).unwrap();
        let result: Value = result.decode().unwrap();

        let expected = json!({"content": [{"type": "text", "text": r#"{"a": 1.50}"#}]});
        assert_eq!(result, expected, "{text}");
    }
}

#[test]
fn a_sampling_result_is_merged_into_one_block_for_old_versions() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
    let sampled = |content: Value| {
        let wrote = json!({"role": "assistant", "model": "m", "content": content});
        sealed("2025-06-18", "sampling/createMessage", wrote)
    };
    let content = |outcome: Outcome| outcome.unwrap().decode::<Value>().unwrap()["content"].take();

    assert_eq!(content(sampled(json!([image]))), image);
    assert_eq!(
        content(sampled(json!([text("a"), text("b")]))),
        text("a\nb")
    );
    assert_eq!(content(sampled(text("a"))), text("a"));
    assert!(sampled(json!([text("a"), image])).is_err());
    assert_eq!(content(sampled(json!([]))), text(""));
}

#[test]
fn an_elicitation_schema_is_converted_to_its_version() {
    let form = json!({"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {
        "color": {"type": "string", "default": "r", "oneOf": [
            {"const": "r", "title": "Red"}, {"const": "g", "title": "Green"},
        ]},
        "sure": {"type": "boolean", "default": true},
    }}});
    let plain = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {
        "color": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        "sure": {"type": "boolean", "default": true},
    }}});

    assert_eq!(
        params("2025-06-18", "elicitation/create", form.clone()),
        plain
    );
    assert_eq!(
        params("2025-11-25", "elicitation/create", form.clone()),
        form
    );
}

#[test]
fn undefined_params_members_are_removed() {
    for version in VERSIONS {
        let ask = json!({"ref": {}, "argument": {}, "context": {"arguments": {}}});
        let asked = params(version, "completion/complete", ask);
        assert_eq!(
            asked.get("context").is_some(),
            version >= "2025-06-18",
            "{version}"
        );

        let progress = json!({"progressToken": 1, "progress": 1, "message": "half"});
        let progress = Notification::new("notifications/progress", Some(progress.into()));
        let sent = convert_notification(dialect(version), progress)
            .unwrap()
            .params
            .unwrap();
        let sent: Value = sent.decode().unwrap();
        assert_eq!(
            sent.get("message").is_some(),
            version >= "2025-03-26",
            "{version}"
        );
    }
}

#[test]
fn client_and_server_info_have_the_members_of_the_version() {
    let implementation = json!({
        "name": "n", "version": "1", "title": "N", "description": "d", "websiteUrl": "w", "icons": [],
    });
    let capabilities = json!({
        "elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}},
        "roots": {"listChanged": true}, "tasks": {},
    });
    for (version, members, expected) in [
        (
            "2024-11-05",
            &["name", "version"][..],
            json!({"sampling": {"context": {}}, "roots": {"listChanged": true}}),
        ),
        (
            "2025-06-18",
            &["name", "title", "version"],
            json!({"elicitation": {}, "sampling": {"context": {}}, "roots": {"listChanged": true}}),
        ),
        (
            "2025-11-25",
            &[
                "description",
                "icons",
                "name",
                "title",
                "version",
                "websiteUrl",
            ],
            capabilities.clone(),
        ),
    ] {
        let mut caller = Caller::new(dialect(version));
        caller.implementation = Some(serde_json::from_value(implementation.clone()).unwrap());
        caller.capabilities = serde_json::from_value(capabilities.clone()).unwrap();
        let request = Request::new("server/discover", Json::empty_object(), Arc::new(caller));
        let initialize: Value = stamp(&request).params.unwrap().decode().unwrap();
        let form = Seal::new(dialect(version), "server/discover");
        let found = json!({"supportedVersions": [], "capabilities": {}});
        let answer = seal(&form, &Json::from(implementation.clone()), Ok(found.into())).unwrap();
        let answer: Value = answer.decode().unwrap();

        assert_eq!(names(&initialize["clientInfo"]), members, "{version}");
        assert_eq!(initialize["capabilities"], expected, "{version}");
        assert_eq!(names(&answer["serverInfo"]), members, "{version}");
    }
}

#[test]
fn the_elicitation_capability_without_forms_is_removed_for_versions_without_url_mode() {
    for (version, expected) in [
        ("2025-06-18", json!({})),
        ("2025-11-25", json!({"elicitation": {"url": {}}})),
    ] {
        let capabilities = Json::from(json!({"elicitation": {"url": {}}}));

        let converted: Value = RevisionConverter(dialect(version))
            .client_capabilities(capabilities)
            .decode()
            .unwrap();

        assert_eq!(converted, expected, "{version}");
    }
}

#[test]
fn a_request_that_is_not_encoded_loses_the_same_members() {
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}});
    let complete = json!({"ref": {}, "argument": {}, "context": {"arguments": {}}});
    for version in VERSIONS {
        let mut caller = Caller::new(dialect(version));
        caller.capabilities = serde_json::from_value(capabilities.clone()).unwrap();
        let request = Request::new(
            "completion/complete",
            Json::from(complete.clone()),
            Arc::new(caller),
        );
        let discover = Request::new(
            "server/discover",
            Json::empty_object(),
            request.caller.clone(),
        );
        let handshake: Value = stamp(&discover).params.unwrap().decode().unwrap();
        let stamped = stamp(&request).params.unwrap();

        let converted = RequestConverter::default().convert(request);

        assert_eq!(converted.params, stamped, "{version}");
        assert_eq!(
            serde_json::to_value(&converted.caller.capabilities).unwrap(),
            handshake["capabilities"],
            "{version}"
        );
    }
}
