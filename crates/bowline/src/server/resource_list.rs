//! [`ResourceList`], a callback of [`Server::resource_list`](super::Server::resource_list) that supplies entries of
//! `resources/list`.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use bowline_types::{Resource, RpcError};

use super::tool_error::ToolError;
use crate::exchange::{BoxFuture, Context, Extensions};

/// A callback that supplies resources when they are listed.
#[derive(Clone)]
pub(super) struct ResourceList {
    list: Arc<ListFn>,
    /// The state of the mounted server that it comes from; empty unless it was mounted.
    pub(super) state: Extensions,
}

type ListFn = dyn Fn(Context) -> BoxFuture<'static, Result<Vec<Resource>, RpcError>> + Send + Sync;

/// A return type of the function of [`Server::resource_list`](super::Server::resource_list): definitions of resources,
/// or a `Result` of them with any error type that [`ToolError`] can be made from.
pub trait IntoResourceList {
    /// Converts it into definitions of resources.
    ///
    /// # Errors
    ///
    /// If the resources cannot be listed.
    fn into_resource_list(self) -> Result<Vec<Resource>, RpcError>;
}

impl IntoResourceList for Vec<Resource> {
    fn into_resource_list(self) -> Result<Self, RpcError> {
        Ok(self)
    }
}

impl<E: Into<ToolError>> IntoResourceList for Result<Vec<Resource>, E> {
    fn into_resource_list(self) -> Result<Vec<Resource>, RpcError> {
        Ok(self.map_err(Into::into)?)
    }
}

impl ResourceList {
    pub(super) fn new<F, R>(list: impl Fn(Context) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoResourceList,
    {
        let list = move |cx| -> BoxFuture<'static, _> {
            let listed = list(cx);
            Box::pin(async { listed.await.into_resource_list() })
        };
        Self {
            list: Arc::new(list),
            state: Extensions::default(),
        }
    }
}

/// Returns the resources that the callbacks supply for the caller of this request, by URI. The earlier of two with the
/// same URI takes precedence.
pub(super) async fn listed_resources(
    lists: &[ResourceList],
    cx: &Context,
) -> Result<BTreeMap<String, Resource>, RpcError> {
    let mut all = BTreeMap::new();
    for ResourceList { list, state } in lists {
        let mut cx = cx.clone();
        cx.extensions_mut().extend(state);
        for resource in list(cx).await? {
            all.entry(resource.uri.clone()).or_insert(resource);
        }
    }
    Ok(all)
}
