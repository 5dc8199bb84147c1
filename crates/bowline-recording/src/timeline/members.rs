//! Members of JSON objects, found without decoding the rest.

use bowline_core::json::pick;
use bowline_types::Json;

/// Returns the member at a path of names. `None` if there is none, or if it is ambiguous.
pub(crate) fn member(json: &Json, path: &[&str]) -> Option<Json> {
    let mut found = json.clone();
    for name in path {
        let [next] = pick(&found, [name]).ok()?;
        found = next?;
    }
    Some(found)
}

/// Returns the string at a path of names.
pub(crate) fn text_member(json: &Json, path: &[&str]) -> Option<String> {
    let member = member(json, path)?;
    member.text().ok().map(std::borrow::Cow::into_owned)
}
