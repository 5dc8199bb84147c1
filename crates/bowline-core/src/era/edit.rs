//! Helpers that edit params, results and their `_meta` without decoding them.

use bowline_types::Json;
use serde::Serialize;

use crate::json::Object;

/// Edits `_meta`. A `_meta` that is not an object is replaced; one that ends up empty is removed.
pub(super) fn edit_meta(object: &mut Object<'_>, edit: impl FnOnce(&mut Object<'_>)) {
    let old = object.member("_meta").cloned();
    let mut meta = old
        .as_ref()
        .and_then(|meta| Object::read(meta).ok())
        .unwrap_or_default();
    edit(&mut meta);
    if meta.is_empty() {
        object.remove("_meta");
    } else {
        object.set("_meta", meta.to_json());
    }
}

/// Sets a member to `value`, or removes it.
pub(super) fn set_or_remove(object: &mut Object<'_>, name: &'static str, value: Option<Json>) {
    match value {
        Some(value) => object.set(name, value),
        None => {
            object.remove(name);
        }
    }
}

/// Encodes a value of `bowline-types`.
pub(super) fn encode<T: Serialize + ?Sized>(value: &T) -> Json {
    Json::encode(value).expect("`bowline-types` values always serialize")
}
