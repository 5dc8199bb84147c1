//! [`merge_introductions`]: one result of `server/discover` for several servers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bowline::Json;
use bowline_types::ProtocolVersion;
use serde_json::value::RawValue;

use super::names::Names;
use super::raw_object::RawObject;

/// Merges the results of `server/discover` of several servers.
///
/// * Capabilities are united: objects by their members, booleans are true if one is, and of other values the first
///   counts. Members that are unknown survive.
/// * Instructions are joined, each below the name of its server and its prefix.
/// * `supportedVersions` are those of the front. `ttlMs` is the smallest; the result is public only if all parts are.
///
/// `_meta`, which names the server, is left to the front.
///
/// # Examples
///
/// ```
/// use bowline::Json;
/// use bowline_bridge::many::{Names, merge_introductions};
/// use bowline_types::ProtocolVersion;
///
/// let names = Names::new("__", [("files", None), ("git", None)])?;
/// let files = Json::parse(r#"{"capabilities": {"tools": {"listChanged": true}}, "instructions": "Be brief."}"#)?;
/// let git = Json::parse(r#"{"capabilities": {"tools": {}, "prompts": {}}}"#)?;
/// let merged = merge_introductions(&names, [("files", &files), ("git", &git)], &[ProtocolVersion::LATEST], None);
/// let merged: serde_json::Value = merged.decode()?;
/// assert_eq!(merged["capabilities"], serde_json::json!({"tools": {"listChanged": true}, "prompts": {}}));
/// let instructions = "# files (names begin with `files__`)\n\nBe brief.";
/// assert_eq!(merged["instructions"], instructions);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn merge_introductions<'a>(
    names: &Names,
    parts: impl IntoIterator<Item = (&'a str, &'a Json)>,
    versions: &[ProtocolVersion],
    instructions: Option<&str>,
) -> Json {
    let parts: Vec<_> = (parts.into_iter())
        .filter_map(|(server, part)| Some((server, RawObject::parse(part.as_str()).ok()?)))
        .collect();
    let capabilities = parts
        .iter()
        .filter_map(|(_, part)| part.get("capabilities"));
    let mut text = b"{\"capabilities\":".to_vec();
    write_union(&mut text, &capabilities.collect::<Vec<_>>(), MAX_DEPTH);
    let mut add = |name: &str, value: &str| {
        text.push(b',');
        Json::push_string(&mut text, name);
        text.push(b':');
        text.extend_from_slice(value.as_bytes());
    };
    add("supportedVersions", &encoded(versions));
    let joined = join_instructions(names, &parts, instructions);
    if !joined.is_empty() {
        add("instructions", &encoded(&joined));
    }
    let ttls = parts
        .iter()
        .map(|(_, part)| part.get("ttlMs")?.get().parse().ok());
    let ttls: Option<Vec<u64>> = ttls.collect();
    if let Some(ttl) = ttls.and_then(|ttls| ttls.into_iter().min()) {
        add("ttlMs", &ttl.to_string());
    }
    let is_public = |(_, part): &(&str, RawObject<'_>)| {
        part.text("cacheScope")
            .is_some_and(|scope| scope == "public")
    };
    let scope = match !parts.is_empty() && parts.iter().all(is_public) {
        true => "\"public\"",
        false => "\"private\"",
    };
    add("cacheScope", scope);
    text.push(b'}');
    Json::from_valid(text.into())
}

fn join_instructions(
    names: &Names,
    parts: &[(&str, RawObject<'_>)],
    instructions: Option<&str>,
) -> String {
    let own = instructions.map(str::to_owned);
    let of_servers = parts.iter().filter_map(|(server, part)| {
        let text = part.text("instructions")?;
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        Some(match names.prefix_of(server).unwrap_or_default() {
            "" if names.servers().count() == 1 => text.to_owned(),
            "" => format!("# {server}\n\n{text}"),
            prefix => format!("# {server} (names begin with `{prefix}`)\n\n{text}"),
        })
    });
    let all: Vec<_> = own.into_iter().chain(of_servers).collect();
    all.join("\n\n")
}

/// Writes the union of values. Below `depth` levels of objects the first value counts, so that a hostile server cannot
/// exhaust the stack.
fn write_union(out: &mut Vec<u8>, values: &[&RawValue], depth: usize) {
    let objects: Vec<_> = (values.iter())
        .filter(|_| depth > 0)
        .filter_map(|value| RawObject::parse(value.get()).ok())
        .collect();
    if objects.is_empty() {
        let is_true = values.iter().any(|value| value.get() == "true");
        let first = values.first().map_or("{}", |value| value.get());
        let is_boolean = matches!(first, "true" | "false");
        let value = if is_true && is_boolean { "true" } else { first };
        return out.extend_from_slice(value.as_bytes());
    }
    let mut members: Vec<(&str, Vec<&RawValue>)> = Vec::new();
    // A server may have as many members as fit into a message.
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, value) in objects.iter().flat_map(RawObject::iter) {
        match places.entry(name) {
            Entry::Occupied(place) => members[*place.get()].1.push(value),
            Entry::Vacant(place) => {
                place.insert(members.len());
                members.push((name, vec![value]));
            }
        }
    }
    out.push(b'{');
    for (at, (name, values)) in members.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        Json::push_string(out, name);
        out.push(b':');
        write_union(out, values, depth - 1);
    }
    out.push(b'}');
}

fn encoded<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// Capabilities are three levels deep, settings of extensions perhaps a few more.
const MAX_DEPTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(parts: &[(&str, &str)]) -> serde_json::Value {
        let names = Names::new("__", parts.iter().map(|(server, _)| (*server, None))).unwrap();
        let parts: Vec<_> = (parts.iter())
            .map(|(server, part)| (*server, Json::parse((*part).to_owned()).unwrap()))
            .collect();
        let parts = parts.iter().map(|(server, part)| (*server, part));
        merge_introductions(&names, parts, &[ProtocolVersion::LATEST], None)
            .decode()
            .unwrap()
    }

    #[test]
    fn capabilities_are_united_and_unknown_ones_survive() {
        let merged = merged(&[
            (
                "a",
                r#"{"capabilities": {"tools": {"listChanged": false, "x": 1.50}, "extensions": {"a/b": {"c": [1]}}}}"#,
            ),
            (
                "b",
                r#"{"capabilities": {"tools": {"listChanged": true, "x": 2}, "extensions": {"a/b": {"d": null}, "e/f": {}}}}"#,
            ),
            ("c", "7"),
        ]);

        let expected = serde_json::json!({
            "tools": {"listChanged": true, "x": 1.5},
            "extensions": {"a/b": {"c": [1], "d": null}, "e/f": {}},
        });
        assert_eq!(merged["capabilities"], expected);
    }

    #[test]
    fn deeply_nested_capabilities_do_not_exhaust_the_stack() {
        let deep = format!(
            r#"{{"capabilities": {}1{}}}"#,
            r#"{"a":"#.repeat(100_000),
            "}".repeat(100_000)
        );
        let names = Names::new("__", [("a", None)]).unwrap();

        let merged = merge_introductions(&names, [("a", &Json::parse(deep).unwrap())], &[], None);

        assert!(merged.as_str().starts_with(r#"{"capabilities":{"a":{"a":"#));
    }

    #[test]
    fn hints_are_those_of_the_most_careful_server() {
        let both = |a, b| {
            let merged = merged(&[("a", a), ("b", b)]);
            (merged["ttlMs"].clone(), merged["cacheScope"].clone())
        };
        let public = r#"{"ttlMs": 60, "cacheScope": "public"}"#;
        let private = r#"{"ttlMs": 5, "cacheScope": "private"}"#;

        assert_eq!(both(public, public), (60.into(), "public".into()));
        assert_eq!(both(public, private), (5.into(), "private".into()));
        assert_eq!(
            both(public, "{}"),
            (serde_json::Value::Null, "private".into())
        );
    }

    #[test]
    fn the_instructions_of_a_single_server_stay_as_they_are() {
        let one = merged(&[("a", r#"{"instructions": "One."}"#)]);
        assert_eq!(one["instructions"], "One.");
        let none = merged(&[("a", r#"{"instructions": " "}"#), ("b", "{}")]);
        assert_eq!(none.get("instructions"), None);
    }

    #[test]
    fn without_servers_there_is_an_empty_introduction() {
        let merged = merge_introductions(&Names::new("__", []).unwrap(), [], &[], Some("Hello."));

        let merged: serde_json::Value = merged.decode().unwrap();
        assert_eq!(merged["capabilities"], serde_json::json!({}));
        assert_eq!(merged["instructions"], "Hello.");
    }
}
