//! Edits of params, results and their `_meta`, without decoding what is in them.

use bowline_types::Json;
use serde::Serialize;

use crate::json::Object;

/// Edits `_meta`. What is there but no object gives way; what is left empty is removed.
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

/// Makes a member what it must be: this value, or absent.
pub(super) fn own(object: &mut Object<'_>, name: &'static str, value: Option<Json>) {
    match value {
        Some(value) => object.set(name, value),
        None => {
            object.remove(name);
        }
    }
}

/// Encodes a value of the vocabulary.
pub(super) fn encode<T: Serialize + ?Sized>(value: &T) -> Json {
    Json::encode(value).expect("the vocabulary always has a JSON form")
}
