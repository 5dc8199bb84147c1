//! The part of an extension in `subscriptions/listen`: its filter members and its notifications.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bowline_core::Notification;
use bowline_core::era::Caller;
use bowline_core::json::Object;
use bowline_types::{Json, RpcError, SubscriptionFilter};
use serde_json::Value;

use super::RegisteredExtension;
use crate::exchange::{BoxFuture, Context};
use crate::server::definition::ServerDefinition;

/// The part of an extension in one subscription; returned by
/// [`ServerExtension::subscribe`](super::ServerExtension::subscribe).
///
/// # Examples
///
/// ```
/// use std::collections::BTreeMap;
/// use bowline::Json;
/// use bowline::server::ExtensionSubscription;
/// use serde_json::json;
///
/// fn subscribe(accepted: BTreeMap<String, Json>) -> ExtensionSubscription {
///     ExtensionSubscription::new(accepted, |notifier| async move {
///         notifier.notify("notifications/drawings", json!({"drawingId": "7"}).into());
///     })
/// }
/// ```
#[must_use = "a subscription starts when `ServerExtension::subscribe` returns it"]
pub struct ExtensionSubscription {
    accepted: BTreeMap<String, Json>,
    run: Box<RunSubscription>,
}

type RunSubscription = dyn FnOnce(SubscriptionNotifier) -> BoxFuture<'static, ()> + Send;

impl ExtensionSubscription {
    /// Creates the part from the filter members that the server accepts, which the acknowledgement contains, and from
    /// a function that sends notifications.
    ///
    /// `run` is called after the acknowledgement was sent. Its future is dropped when the subscription ends; if it ends
    /// earlier, the subscription goes on without it.
    pub fn new<F>(
        accepted: BTreeMap<String, Json>,
        run: impl FnOnce(SubscriptionNotifier) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            accepted,
            run: Box::new(|notifier| Box::pin(run(notifier))),
        }
    }
}

impl fmt::Debug for ExtensionSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtensionSubscription")
            .field("accepted", &self.accepted)
            .finish_non_exhaustive()
    }
}

/// Sends the notifications of an extension to one subscriber. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SubscriptionNotifier {
    cx: Context,
    /// The `_meta` with the subscription id.
    meta: Json,
}

impl SubscriptionNotifier {
    pub(in crate::server) fn new(cx: Context, meta: Json) -> Self {
        Self { cx, meta }
    }

    /// Sends a notification with the subscription id in its `_meta`. `params` must be an object. Does nothing after
    /// the subscription has ended.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers make the params for this"
    )]
    pub fn notify(&self, method: impl Into<Cow<'static, str>>, params: Json) {
        let method = method.into();
        match self.with_meta(&params) {
            Some(params) => {
                let notification = Notification::new(method, Some(params));
                self.cx.send(notification);
            }
            None => tracing::warn!(%method, "the params of a notification must be an object"),
        }
    }

    /// Adds the subscription id to the `_meta` of params; `None` if they are not an object.
    fn with_meta(&self, params: &Json) -> Option<Json> {
        let mut params = Object::read(params).ok()?;
        let old = params.remove("_meta");
        let old = old.as_ref().and_then(|meta| Object::read(meta).ok());
        let mut meta = old.unwrap_or_default();
        let id = Object::read(&self.meta).ok()?;
        for (name, value) in id.iter() {
            meta.set(name.to_owned(), value.clone());
        }
        params.set("_meta", meta.to_json());
        Some(params.to_json())
    }
}

/// The members of a filter that belong to one extension.
pub(in crate::server) struct RequestedFilter {
    extension: Arc<RegisteredExtension>,
    members: BTreeMap<String, Json>,
}

/// Returns the members of a filter that belong to extensions of the server, by extension.
///
/// # Errors
///
/// If the caller did not declare one of the extensions.
pub(in crate::server) fn requested_filters(
    definition: &ServerDefinition,
    filter: &SubscriptionFilter,
    caller: &Caller,
) -> Result<Vec<RequestedFilter>, RpcError> {
    let mut requested = Vec::new();
    if filter.other.is_empty() {
        return Ok(requested);
    }
    for extension in &definition.extensions {
        let names = extension.filter_members.iter();
        let members: BTreeMap<_, _> = names
            .filter_map(|name| Some((name.clone(), filter.other.get(name)?)))
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, Json::from(value.clone())))
            .collect();
        if members.is_empty() || !extension.is_available_in(caller.dialect) {
            continue;
        }
        extension.check_declared(caller)?;
        requested.push(RequestedFilter {
            extension: extension.clone(),
            members,
        });
    }
    Ok(requested)
}

impl RequestedFilter {
    /// Opens the part of the extension.
    pub(in crate::server) async fn open(self, cx: Context) -> Result<OpenedFilter, RpcError> {
        let extension = self.extension;
        let ExtensionSubscription { mut accepted, run } =
            extension.extension.subscribe(self.members, cx).await?;
        // Only its own: it must not acknowledge members of the protocol or of another extension.
        accepted.retain(|name, _| extension.filter_members.contains(name));
        let accepted = accepted.into_iter();
        let accepted = accepted.filter_map(|(name, value)| Some((name, value.decode().ok()?)));
        Ok(OpenedFilter {
            accepted: accepted.collect(),
            run,
        })
    }
}

/// An open part of a subscription, which has not sent any notifications yet.
pub(in crate::server) struct OpenedFilter {
    pub(in crate::server) accepted: BTreeMap<String, Value>,
    run: Box<RunSubscription>,
}

impl OpenedFilter {
    pub(in crate::server) fn start(self, notifier: SubscriptionNotifier) -> BoxFuture<'static, ()> {
        (self.run)(notifier)
    }
}
