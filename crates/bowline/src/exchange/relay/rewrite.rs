//! The text edits of a [`Relay`](super::Relay): progress tokens and subscription ids.

use std::sync::LazyLock;

use bowline_core::era::Request;
use bowline_core::json::{Object, pick};
use bowline_core::{CorrelationKey, Notification};
use bowline_types::{Json, LoggingLevel, ProgressToken, RequestId, meta_key};
use memchr::memchr;
use memchr::memmem::Finder;
use serde::Serialize;

/// Sets the progress token of a request to that of the upstream, or removes it.
pub(super) fn set_progress_token(request: &mut Request, token: Option<&ProgressToken>) {
    request.progress_token = token.cloned();
    // `_meta` may still have the front's token. Wires overwrite it, and a handler in process would see it.
    let Ok(Some(meta)) = request.params.member("_meta") else {
        return;
    };
    // Most have none, and reading all members costs more. A name may also be written with escapes.
    let text = meta.as_bytes();
    if PROGRESS_TOKEN.find(text).is_none() && memchr(b'\\', text).is_none() {
        return;
    }
    let Ok(mut meta_members) = Object::read(&meta) else {
        return;
    };
    if meta_members.remove(meta_key::PROGRESS_TOKEN).is_none() {
        return;
    }
    if let Some(token) = token {
        meta_members.set(meta_key::PROGRESS_TOKEN, encode(token));
    }
    request.params = with_member(&request.params, "_meta", meta_members.to_json()).into();
}

/// Returns a progress notification with the token `to`, or `None` if it does not have the token `from`.
pub(super) fn with_progress_token(
    notification: &Notification,
    from: &ProgressToken,
    to: &ProgressToken,
) -> Option<Notification> {
    let params = notification.params.as_ref()?;
    let [token] = pick(params, [meta_key::PROGRESS_TOKEN]).ok()?;
    let token: ProgressToken = token?.decode().ok()?;
    if CorrelationKey::from(&token) != CorrelationKey::from(from) {
        return None;
    }
    let params = with_member(params, meta_key::PROGRESS_TOKEN, encode(to));
    Some(Notification::new(notification.method.clone(), Some(params)))
}

/// Returns the notification with this subscription id in its `_meta`.
pub(super) fn with_subscription_id(notification: Notification, id: &RequestId) -> Notification {
    let Notification { method, params, .. } = notification;
    let params = params.unwrap_or_else(Json::empty_object);
    Notification::new(method, Some(set_subscription_id(&params, id)))
}

/// Returns the params or the result with this subscription id in its `_meta`.
pub(super) fn set_subscription_id(object: &Json, id: &RequestId) -> Json {
    let meta = match pick(object, ["_meta"]) {
        Ok([Some(meta)]) if meta.is_object() => meta,
        _ => Json::empty_object(),
    };
    let meta = with_member(&meta, meta_key::SUBSCRIPTION_ID, encode(id));
    with_member(object, "_meta", meta)
}

/// Returns the level of a log message.
pub(super) fn log_level(notification: &Notification) -> Option<LoggingLevel> {
    let [level] = pick(notification.params.as_ref()?, ["level"]).ok()?;
    level?.decode().ok()
}

/// Returns the object with one member added or replaced; other JSON unchanged.
fn with_member(object: &Json, name: &str, value: Json) -> Json {
    match Object::read(object) {
        Ok(mut members) => {
            members.set(name, value);
            members.to_json()
        }
        Err(_) => object.clone(),
    }
}

/// Searches for the name of the progress token.
static PROGRESS_TOKEN: LazyLock<Finder<'static>> =
    LazyLock::new(|| Finder::new(meta_key::PROGRESS_TOKEN));

fn encode<T: Serialize>(id: &T) -> Json {
    Json::encode(id).expect("ids and tokens are serializable")
}
