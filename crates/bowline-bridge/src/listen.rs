//! Forwards a subscription, and with it what a legacy server sends outside of any request.

use std::pin::pin;

use bowline::Context;
use bowline::client::{Unsolicited, UnsolicitedEvent};
use bowline::exchange::{CallOptions, Notification, Outcome, Relay, Request};
use bowline::types::{
    ElicitationCompleteNotification, LoggingLevel, LoggingMessageNotification, NotificationMethod,
};

use crate::forward::{open_connection, relayed_answer, result_of, upstream_request};
use crate::front::{FrontConnection, OpenOutlet};
use crate::upstream::Upstream;

/// Forwards `subscriptions/listen`. For a legacy client it is the bridge's own request, as long as the client is
/// connected.
pub(crate) async fn listen(upstream: &Upstream, request: Request, cx: &Context) -> Outcome {
    let is_legacy_client = !request.caller.dialect.is_modern();
    let front = FrontConnection::of(cx).filter(|_| is_legacy_client);
    // Before the server is connected, which may then ask at once.
    let outlet = front.map(|front| front.outlet(upstream.id()).open(cx));
    let lease = upstream.lease(&request, cx).await?;
    let connection = open_connection(&lease)?;
    let _log_level = connection.set_log_level(&request.caller).await;
    let request = upstream_request(connection, request);
    // No timeout: a subscription may be silent for days.
    let mut relay = Relay::open(connection.channel(), request, CallOptions::default());
    let answer = relayed_answer(upstream, &lease, &mut relay, cx);
    let Some(outlet) = outlet else {
        return Ok(result_of(answer.await?));
    };
    let mut answer = pin!(answer);
    let answer = tokio::select! {
        biased; // the answer first: it ends the subscription
        answer = &mut answer => answer,
        () = pass_unsolicited(connection.channel().unsolicited(), &outlet, cx) => answer.await,
    };
    Ok(result_of(answer?))
}

/// Passes on the notifications of a legacy server that belong to no request. Returns when there are no more.
async fn pass_unsolicited(mut unsolicited: Unsolicited, outlet: &OpenOutlet, cx: &Context) {
    while let Some(event) = unsolicited.next().await {
        match event {
            UnsolicitedEvent::Notification(notification) => {
                if outlet.is_current() && is_passed(&notification, cx) {
                    cx.send(notification);
                }
            }
            event => tracing::debug!(?event, "notifications of an upstream were lost"),
        }
    }
}

/// Returns whether the client is sent a notification. Changes are left to its subscription.
fn is_passed(notification: &Notification, cx: &Context) -> bool {
    match &*notification.method {
        LoggingMessageNotification::NAME => {
            let least = cx.caller().least_log_level();
            least.is_some_and(|least| level_of(notification).is_some_and(|level| level >= least))
        }
        ElicitationCompleteNotification::NAME => true,
        method => !method.starts_with("notifications/"),
    }
}

fn level_of(notification: &Notification) -> Option<LoggingLevel> {
    #[derive(serde::Deserialize)]
    struct Level {
        level: LoggingLevel,
    }
    let params = notification.params.as_ref()?;
    Some(params.decode::<Level>().ok()?.level)
}
