//! Decoding of the exchange that a notification refers to, and encoding of `notifications/cancelled`.

use bowline_types::{Json, ProgressToken, RequestId};
use serde::{Deserialize, Serialize};

use crate::message::Notification;

/// The exchange that a notification refers to.
pub(super) enum Reference {
    Cancelled(CancelledParams),
    Progress(ProgressToken),
    /// `_meta` has the id of the request that opened a subscription.
    Subscription(RequestId),
    /// A log message, which does not name its exchange.
    Log,
    NoExchange,
    /// The reference is missing or malformed.
    Malformed,
}

/// The params of `notifications/cancelled`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CancelledParams {
    pub(super) request_id: RequestId,
    pub(super) reason: Option<String>,
}

pub(super) fn read_reference(notification: &Notification) -> Reference {
    let params = notification.params.as_ref();
    match &*notification.method {
        CANCELLED => decode(params).map_or(Reference::Malformed, Reference::Cancelled),
        PROGRESS => decode(params)
            .map_or(Reference::Malformed, |ProgressParams { progress_token }| {
                Reference::Progress(progress_token)
            }),
        _ => match decode(params) {
            Some(ParamsWithMeta {
                meta:
                    Some(SubscriptionMeta {
                        subscription_id: Some(id),
                    }),
            }) => Reference::Subscription(id),
            _ if notification.method == LOG => Reference::Log,
            _ => Reference::NoExchange,
        },
    }
}

/// Returns the request that a `notifications/cancelled` is for; `None` for other notifications.
pub(super) fn cancelled_request(notification: &Notification) -> Option<RequestId> {
    let params = notification.params.as_ref();
    decode(params.filter(|_| notification.method == CANCELLED))
        .map(|CancelledParams { request_id, .. }| request_id)
}

/// Creates `notifications/cancelled`.
pub(super) fn cancel(request_id: &RequestId, reason: &str) -> Notification {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CancelParams<'a> {
        request_id: &'a RequestId,
        reason: &'a str,
    }
    let params = Json::encode(&CancelParams { request_id, reason })
        .expect("an id and text are serializable");
    Notification::new(CANCELLED, Some(params))
}

fn decode<'a, T: Deserialize<'a>>(params: Option<&'a Json>) -> Option<T> {
    params?.decode().ok()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams {
    progress_token: ProgressToken,
}

#[derive(Deserialize)]
struct ParamsWithMeta {
    #[serde(rename = "_meta")]
    meta: Option<SubscriptionMeta>,
}

#[derive(Deserialize)]
struct SubscriptionMeta {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    subscription_id: Option<RequestId>,
}

const CANCELLED: &str = "notifications/cancelled";
const PROGRESS: &str = "notifications/progress";
const LOG: &str = "notifications/message";
