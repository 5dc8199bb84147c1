//! Properties of the `json` module: splitting, editing and partial decoding agree with `serde_json`, which decodes
//! everything.

use std::collections::BTreeSet;
use std::fmt;

use bowline_core::era::{Caller, Dialect, Request, Seal, seal, stamp};
use bowline_core::json::{INDEXED_MEMBERS, Object, Params, PickError, outline, pick};
use bowline_core::{Malformed, Message};
use bowline_types::{CallToolResult, ErrorCode, Json, meta_key};
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::json_generator::generate_json;

/// Uses the input as JSON text, as the script from which `generate_json` generates JSON, and as the contents of a
/// string.
pub fn json(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    check(&text);
    let generated = generate_json(input);
    assert!(
        is_json(&generated),
        "the generated text is not valid JSON: {generated}"
    );
    check(&generated);
    check_escaping(&text);
}

/// Returns whether `Message::decode` finds valid JSON, be it a message or not.
fn is_json(text: &str) -> bool {
    match Message::decode(&Bytes::copy_from_slice(text.as_bytes())) {
        Err(Malformed::Request { error, .. }) => error.code != ErrorCode::PARSE_ERROR,
        _ => true,
    }
}

fn check(text: &str) {
    let json = Json::parse(text.to_owned());
    assert_eq!(is_json(text), json.is_ok(), "{text}");
    if let Ok(json) = json {
        check_outline(&json);
        check_text(&json);
        check_members(&json);
        check_edits(&json);
    }
}

/// An outline equals the decoded value, except that strings longer than `max_string_len` may be empty.
fn check_outline(json: &Json) {
    let value: Option<Value> = json.decode().ok();
    assert_eq!(outline(json, usize::MAX), value, "{json}");
    for max_string_len in [0, 8] {
        let outlined = outline(json, max_string_len);
        assert_eq!(outlined.is_some(), value.is_some(), "{json}");
        if let (Some(outlined), Some(value)) = (&outlined, &value) {
            assert!(is_outline(outlined, value, max_string_len), "{json}");
        }
    }
}

fn is_outline(outlined: &Value, value: &Value, max_string_len: usize) -> bool {
    match (outlined, value) {
        (Value::String(outlined), Value::String(full)) => {
            outlined == full || outlined.is_empty() && full.len() > max_string_len
        }
        (Value::Array(outlined), Value::Array(full)) => {
            let mut items = outlined.iter().zip(full);
            outlined.len() == full.len()
                && items.all(|(outlined, full)| is_outline(outlined, full, max_string_len))
        }
        (Value::Object(outlined), Value::Object(full)) => {
            let mut members = outlined.iter().zip(full);
            let is_same = |((name, outlined), (full_name, full)): ((&String, _), (&String, _))| {
                name == full_name && is_outline(outlined, full, max_string_len)
            };
            outlined.len() == full.len() && members.all(is_same)
        }
        _ => outlined == value,
    }
}

/// `Json::text` equals what `serde_json` decodes as a `String`.
fn check_text(json: &Json) {
    let text = json.text().ok();
    assert_eq!(text.as_deref(), json.decode::<String>().ok().as_deref());
}

/// Every lookup of a member finds the value that `serde_json` finds, and rejects duplicates.
fn check_members(json: &Json) {
    let entries: Option<Entries<'_>> = json.decode().ok();
    let object = Object::read(json).ok();
    assert_eq!(object.is_some(), entries.is_some(), "{json}");
    let (Some(object), Some(Entries(entries))) = (object, entries) else {
        return;
    };
    let members = object.iter().map(|(name, value)| (name, value.as_str()));
    let expected = entries.iter().map(|(name, raw)| (&**name, raw.get()));
    assert!(members.eq(expected), "{json}");

    let params = Params::from(json.clone());
    let decoded_params =
        params_after_decoding(json).expect("a request with an object as params decodes");
    let names = entries.iter().map(|(name, _)| &**name);
    for name in names.chain(INDEXED_MEMBERS).chain(["resultType"]) {
        let mut found = entries.iter().filter(|(own, _)| own == name);
        let expected = match (found.next(), found.next()) {
            (_, Some(_)) => Err(PickError::Duplicate(name.to_owned())),
            (first, None) => Ok(first.map(|(_, raw)| json.part(raw))),
        };
        let picked = pick(json, [name]).map(|[member]| member);
        assert_eq!(picked, expected, "`{name}` in {json}");
        assert_eq!(params.member(name), expected, "`{name}` in {json}");
        assert_eq!(decoded_params.member(name), expected, "`{name}` in {json}");
    }
}

/// Returns the params of a request after decoding a frame that contains them.
fn params_after_decoding(params: &Json) -> Option<Params> {
    let frame = format!(r#"{{"jsonrpc":"2.0","params" : {params} ,"id":1,"method":"m"}}"#);
    match Message::decode(&Bytes::from(frame)) {
        Ok(Message::Request(request)) => request.params,
        _ => None,
    }
}

/// Editing, sealing or stamping an object does not change its other members.
fn check_edits(json: &Json) {
    let value: Option<Value> = json.decode().ok();
    let Some(Value::Object(members)) = value else {
        return;
    };
    let object = Object::read(json).expect("an object that `serde_json` decodes can be split");
    assert_eq!(decoded(&object.to_json()), members, "{json}");

    let mut writer = json.clone().into_writer().expect("it is an object");
    writer.add("added\n", &Json::null());
    let mut with_more = members.clone();
    with_more.insert("added\n".to_owned(), Value::Null);
    assert_eq!(decoded(&writer.close()), with_more, "{json}");

    // Of duplicate members `serde_json` uses the last, and `seal` the first.
    if has_duplicate_members(&object) {
        return;
    }
    for method in ["tools/call", "resources/read", "tools/list"] {
        check_sealing(json, &members, method);
    }
    check_stamping(json, &members);
}

fn check_sealing(json: &Json, members: &Map<String, Value>, method: &'static str) {
    let server = json!({"name": "s", "version": "1"});
    let sealed = |dialect| {
        let form = Seal::new(dialect, method);
        let result = seal(&form, &server.clone().into(), Ok(json.clone()));
        result.ok().as_ref().map(decoded)
    };
    let modern = modern_form(members.clone(), method, &server);
    assert_eq!(sealed(Dialect::LATEST), modern, "{method}: {json}");
    if method == "resources/read" {
        let legacy = legacy_form(members.clone());
        assert_eq!(sealed(Dialect::LATEST_LEGACY), legacy, "{json}");
    }
}

/// Returns the expected modern form of `result`; `None` if sealing it is an error.
fn modern_form(
    mut result: Map<String, Value>,
    method: &str,
    server: &Value,
) -> Option<Map<String, Value>> {
    let kind = result.entry("resultType").or_insert(json!("complete"));
    let kind = kind.as_str()?.to_owned();
    if kind == "input_required" && !Dialect::LATEST.may_need_input(method) {
        return None;
    }
    if Dialect::LATEST.is_cacheable(method) {
        for (name, safe) in [("ttlMs", json!(0)), ("cacheScope", json!("private"))] {
            if kind == "complete" {
                result.entry(name).or_insert(safe);
            } else {
                result.remove(name);
            }
        }
    }
    let mut meta = take_object(&mut result, "_meta");
    meta.entry(meta_key::SERVER_INFO).or_insert(server.clone());
    result.insert("_meta".to_owned(), meta.into());
    Some(result)
}

/// Returns the expected legacy form of `result`; `None` if sealing it is an error.
fn legacy_form(mut result: Map<String, Value>) -> Option<Map<String, Value>> {
    if result
        .remove("resultType")
        .is_some_and(|of| of != "complete")
    {
        return None;
    }
    result.remove("ttlMs");
    result.remove("cacheScope");
    let mut meta = take_object(&mut result, "_meta");
    meta.remove(meta_key::SERVER_INFO);
    meta.remove(meta_key::SUBSCRIPTION_ID);
    if !meta.is_empty() {
        result.insert("_meta".to_owned(), meta.into());
    }
    Some(result)
}

/// Stamping sets the members of `_meta` that describe the caller and the request, and keeps everything else.
fn check_stamping(json: &Json, members: &Map<String, Value>) {
    let caller = Caller::new(Dialect::LATEST);
    let mut request = Request::new("own/method", json.clone(), caller.into());
    request.progress_token = Some(7.into());

    let stamped = stamp(&request).params.expect("a request keeps its params");

    let mut expected = members.clone();
    let mut meta = take_object(&mut expected, "_meta");
    for own in [meta_key::CLIENT_INFO, meta_key::LOG_LEVEL] {
        meta.remove(own);
    }
    let envelope = json!({
        (meta_key::PROTOCOL_VERSION): Dialect::LATEST.version,
        (meta_key::CLIENT_CAPABILITIES): {},
        (meta_key::PROGRESS_TOKEN): 7,
    });
    meta.extend(envelope.as_object().into_iter().flatten().map(owned));
    expected.insert("_meta".to_owned(), meta.into());
    assert_eq!(decoded(&stamped), expected, "{json}");
}

/// Strings are escaped as `serde_json` escapes them.
fn check_escaping(text: &str) {
    let expected = serde_json::to_string(text).expect("a string serializes");
    let named = Json::object([(text, &Json::null())]);
    assert_eq!(named.as_str(), format!("{{{expected}:null}}"));
    let mut result = CallToolResult::text(text);
    result.structured_content = Some(named);
    let by_serde = serde_json::to_string(&result).expect("a result serializes");
    assert_eq!(
        result.to_json().expect("a result serializes").as_str(),
        by_serde
    );
}

/// Returns whether the object or its `_meta` has duplicate members.
fn has_duplicate_members(object: &Object<'_>) -> bool {
    let has_duplicates = |object: &Object<'_>| {
        let mut names = BTreeSet::new();
        object.iter().any(|(name, _)| !names.insert(name))
    };
    let meta = object.member("_meta").map(Object::read);
    has_duplicates(object) || meta.is_some_and(|meta| meta.is_ok_and(|meta| has_duplicates(&meta)))
}

fn decoded(json: &Json) -> Map<String, Value> {
    json.decode().expect("the output is an object")
}

/// Removes a member and returns it if it is an object, else an empty object.
fn take_object(members: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    match members.remove(name) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

fn owned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

/// The members of an object as `serde_json` finds them, with duplicates.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
