//! [`WatchedResources`], which calls the hooks for the start and the end of subscriptions to resources.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::definition::ServerDefinition;
use crate::callback::catch_panic;
use crate::exchange::{Context, Extensions};

/// A callback of [`Server::on_subscribe`](super::Server::on_subscribe) or
/// [`Server::on_unsubscribe`](super::Server::on_unsubscribe).
#[derive(Clone)]
pub(super) struct SubscriptionHook {
    callback: Arc<HookFn>,
    /// The state of the mounted server that it comes from; empty unless it was mounted.
    pub(super) state: Extensions,
}

type HookFn = dyn Fn(&str, &Context) + Send + Sync;

impl SubscriptionHook {
    pub(super) fn new(callback: impl Fn(&str, &Context) + Send + Sync + 'static) -> Self {
        Self {
            callback: Arc::new(callback),
            state: Extensions::default(),
        }
    }
}

/// The resources of a subscription. Dropping it calls `on_unsubscribe` for each, whatever ends the subscription.
pub(super) struct WatchedResources<'a> {
    definition: &'a ServerDefinition,
    cx: Context,
    uris: BTreeSet<String>,
}

impl<'a> WatchedResources<'a> {
    /// Calls `on_subscribe` for each resource. Returns `None` if there are no hooks or no resources: there may be
    /// thousands of subscriptions.
    pub(super) fn start(
        definition: &'a ServerDefinition,
        cx: &Context,
        uris: &[String],
    ) -> Option<Box<Self>> {
        let has_hooks =
            !definition.on_subscribe.is_empty() || !definition.on_unsubscribe.is_empty();
        if !has_hooks || uris.is_empty() {
            return None;
        }
        // A URI that the client sent twice is one subscription.
        let uris: BTreeSet<_> = uris.iter().cloned().collect();
        call(&definition.on_subscribe, "`on_subscribe`", &uris, cx);
        let mut cx = cx.clone();
        // The values of the request, such as its HTTP head, are not kept for as long as the subscription.
        *cx.extensions_mut() = definition.state.clone();
        Some(Box::new(Self {
            definition,
            cx,
            uris,
        }))
    }
}

impl Drop for WatchedResources<'_> {
    fn drop(&mut self) {
        let hooks = &self.definition.on_unsubscribe;
        call(hooks, "`on_unsubscribe`", &self.uris, &self.cx);
    }
}

/// Calls every hook for every resource. A panic of one does not affect the others.
fn call(hooks: &[SubscriptionHook], what: &'static str, uris: &BTreeSet<String>, cx: &Context) {
    for hook in hooks {
        let mut cx = cx.clone();
        cx.extensions_mut().extend(&hook.state);
        for uri in uris {
            catch_panic(what, || (hook.callback)(uri, &cx));
        }
    }
}
