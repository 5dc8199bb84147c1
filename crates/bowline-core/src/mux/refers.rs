//! Notifications that refer to an exchange: which one they mean.

use bowline_types::{Json, ProgressToken, RequestId};
use serde::{Deserialize, Serialize};

use crate::message::Notification;

/// What a notification is about.
pub(super) enum Referent {
    Cancelled(Cancelled),
    Progress(ProgressToken),
    /// The `_meta` names a subscription by the id of the request that opened it.
    Subscription(RequestId),
    /// No exchange.
    Nothing,
    /// It should name an exchange, and does not.
    Unreadable,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cancelled {
    pub(super) request_id: RequestId,
    pub(super) reason: Option<String>,
}

pub(super) fn referent(notification: &Notification) -> Referent {
    let params = notification.params.as_ref();
    match &*notification.method {
        CANCELLED => decode(params).map_or(Referent::Unreadable, Referent::Cancelled),
        PROGRESS => decode(params).map_or(Referent::Unreadable, |Progress { progress_token }| {
            Referent::Progress(progress_token)
        }),
        _ => match decode(params) {
            Some(About {
                meta: Some(Meta {
                    subscription_id: Some(id),
                }),
            }) => Referent::Subscription(id),
            _ => Referent::Nothing,
        },
    }
}

/// The notification that tells the peer to stop.
pub(super) fn cancel(request_id: &RequestId, reason: &str) -> Notification {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        request_id: &'a RequestId,
        reason: &'a str,
    }
    let params =
        Json::encode(&Params { request_id, reason }).expect("an id and text have a JSON form");
    Notification::new(CANCELLED, Some(params))
}

fn decode<'a, T: Deserialize<'a>>(params: Option<&'a Json>) -> Option<T> {
    params?.decode().ok()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    progress_token: ProgressToken,
}

#[derive(Deserialize)]
struct About {
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    subscription_id: Option<RequestId>,
}

const CANCELLED: &str = "notifications/cancelled";
const PROGRESS: &str = "notifications/progress";
