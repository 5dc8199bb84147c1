//! [`ClientExtension`], a protocol extension of a client, and `ClientExtensions`, those of one client.

use std::any::Any;
use std::sync::Arc;

use bowline_core::era::Caller;
use bowline_core::http::headers::name_member;
use bowline_core::shortened;
use bowline_types::{CapabilitySettings, ClientCapabilities, Json, ResultType, check_extension_id};

use super::{Client, ClientBuilder, ExtensionCall};
use crate::exchange::BoxFuture;
use crate::{Error, Result};

/// A protocol extension of a client: its declaration, its header rules, and its result types.
///
/// An extension is used with servers of 2026-07-28 and later. Every request to them declares it in
/// `clientCapabilities.extensions`; requests to servers of earlier versions do not, and such servers cannot use it.
/// Requests of the extension are sent with [`Client::request_raw`](super::Client::request_raw), its notifications are
/// received with [`Client::subscribe`](super::Client::subscribe) and
/// [`ClientBuilder::on_notification`](super::ClientBuilder::on_notification).
///
/// # Examples
///
/// A server may answer `tools/call` with a ticket, whose result the client fetches:
///
/// ```
/// use bowline::client::{ClientExtension, ExtensionCall, ExtensionResult};
/// use bowline::exchange::{BoxFuture, Outcome, Request};
/// use bowline::{Client, Context, Json};
/// use serde_json::json;
///
/// struct Tickets;
///
/// impl ClientExtension for Tickets {
///     fn id(&self) -> &str {
///         "com.example/tickets"
///     }
///
///     fn name_members(&self) -> &[(&str, &str)] {
///         &[("tickets/redeem", "ticket")]
///     }
///
///     fn result_types(&self) -> &[(&str, &str)] {
///         &[("ticket", "tools/call")]
///     }
///
///     fn complete(&self, result: ExtensionResult, cx: ExtensionCall) -> BoxFuture<'static, bowline::Result<Json>> {
///         Box::pin(async move {
///             #[derive(serde::Deserialize)]
///             struct Ticket {
///                 ticket: String,
///             }
///             let Ticket { ticket } = result.decode()?;
///             let redeemed = cx.client().request_raw("tickets/redeem", json!({"ticket": ticket})).await?;
///             Ok(redeemed.json().clone())
///         })
///     }
/// }
///
/// async fn server(request: Request, _: Context) -> Outcome {
///     Ok(match &*request.method {
///         "tools/call" => json!({"resultType": "ticket", "ticket": "A7"}).into(),
///         _ => json!({"content": [{"type": "text", "text": "done"}]}).into(),
///     })
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let client = Client::in_process(&server).protocol_version("2026-07-28").extension(Tickets).await?;
/// assert_eq!(client.call_tool("slow", ()).await?.text(), "done");
/// # Ok(()) }
/// ```
pub trait ClientExtension: Any + Send + Sync {
    /// Returns the identifier, such as `com.example/tickets`.
    fn id(&self) -> &str;

    /// Returns the settings that every request declares, a JSON object. Called once. By default the object is empty,
    /// which declares support without settings.
    fn settings(&self) -> Json {
        Json::empty_object()
    }

    /// Returns the methods whose HTTP requests have an `Mcp-Name` header, each with the member of its params that the
    /// header mirrors, such as `("tickets/redeem", "ticket")`. Called once. By default there are none.
    fn name_members(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Returns the values of `resultType` that the extension adds, each with a method that may be answered with it, such
    /// as `("ticket", "tools/call")`. By default there are none. A result of another type, or for another method, is an
    /// [`Error::Protocol`].
    fn result_types(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Obtains the final result of a request that was answered with one of the [result types](Self::result_types).
    ///
    /// The future runs inside the [`Call`](super::Call), within its timeouts. Its output is returned to the caller, after
    /// the same validation as a direct result. By default it fails; an extension with result types must implement it.
    ///
    /// # Errors
    ///
    /// The error of the future is that of the call.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped with the call, at any `.await`, but not before its first poll. To send a request then, such
    /// as one that cancels the work, use [`Client::request_detached`](super::Client::request_detached) in the `Drop` of a
    /// value that the future holds.
    fn complete(
        &self,
        result: ExtensionResult,
        cx: ExtensionCall,
    ) -> BoxFuture<'static, Result<Json>> {
        drop(cx);
        let what = format!(
            "the extension `{}` adds the `resultType` `{}` and does not implement `ClientExtension::complete`",
            self.id(),
            result.result_type
        );
        Box::pin(async { Err(Error::misuse(what)) })
    }
}

/// A result whose `resultType` an extension defines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtensionResult {
    /// The `resultType`.
    pub result_type: String,
    /// The whole result, as the server sent it.
    pub result: Json,
}

impl ExtensionResult {
    pub(super) fn new(result_type: String, result: Json) -> Self {
        Self {
            result_type,
            result,
        }
    }

    /// Decodes the result as `T`.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if the result is not a `T`.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        self.result.decode().map_err(|error| {
            let what = format!("failed to decode the result of type `{}`", self.result_type);
            Error::undecodable(what, error)
        })
    }
}

impl ClientBuilder {
    /// Adds a protocol extension, which every request to a server of 2026-07-28 or later declares.
    ///
    /// Connecting fails with [`Error::Misuse`] if its identifier is invalid or declared already, its settings are not
    /// an object, or another extension defines the same result type for the same method.
    pub fn extension(mut self, extension: impl ClientExtension) -> Self {
        match self.config.extensions.add(Arc::new(extension)) {
            Ok(()) => {}
            Err(invalid) => self.set_invalid(invalid),
        }
        self
    }
}

impl Client {
    /// Returns the extension of type `T`, for example to read its settings; `None` if it was not added with
    /// [`ClientBuilder::extension`].
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Client;
    /// use bowline::client::ClientExtension;
    ///
    /// struct Tickets {
    ///     max: usize,
    /// }
    ///
    /// impl ClientExtension for Tickets {
    ///     fn id(&self) -> &str {
    ///         "com.example/tickets"
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> bowline::Result<()> {
    /// # let server = bowline::Server::new("s", "1");
    /// let client = Client::in_process(&server).extension(Tickets { max: 3 }).await?;
    /// assert_eq!(client.extension::<Tickets>().map(|tickets| tickets.max), Some(3));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn extension<T: ClientExtension>(&self) -> Option<&T> {
        let added = &self.inner.config.extensions.0;
        added.iter().find_map(|added| {
            let extension: &dyn Any = &*added.extension;
            extension.downcast_ref()
        })
    }
}

/// The extensions of a client.
#[derive(Clone, Default)]
pub(super) struct ClientExtensions(Vec<AddedExtension>);

#[derive(Clone)]
struct AddedExtension {
    id: String,
    settings: CapabilitySettings,
    extension: Arc<dyn ClientExtension>,
}

impl ClientExtensions {
    /// Returns what is wrong with the extension, if anything is.
    fn add(&mut self, extension: Arc<dyn ClientExtension>) -> Result<(), String> {
        let id = extension.id().to_owned();
        check_extension_id(&id)
            .map_err(|error| format!("invalid extension identifier `{id}`: {error}"))?;
        if self.0.iter().any(|added| added.id == id) {
            return Err(format!("duplicate extension `{id}`"));
        }
        let settings = extension.settings();
        let settings = settings
            .decode()
            .map_err(|_| format!("expected the settings of `{id}` to be an object"))?;
        for (result_type, method) in extension.result_types() {
            let is_core = [ResultType::COMPLETE, ResultType::INPUT_REQUIRED]
                .iter()
                .any(|core| core.as_str() == *result_type);
            if is_core || self.find(result_type, method).is_some() {
                return Err(format!(
                    "the extension `{id}` adds the `resultType` `{result_type}` of `{method}`, which is defined already"
                ));
            }
        }
        let names = self.name_members();
        for (method, member) in extension.name_members() {
            let other = names.iter().find(|(known, _)| known == method);
            let known = name_member(method).or(other.map(|(_, known)| known.as_str()));
            if known.is_some_and(|known| known != *member) {
                return Err(format!(
                    "the extension `{id}` mirrors `{member}` of `{method}` in `Mcp-Name`, which mirrors another member"
                ));
            }
        }
        self.0.push(AddedExtension {
            id,
            settings,
            extension,
        });
        Ok(())
    }

    /// Checks that the application has not declared one of the extensions itself, with other settings.
    pub(super) fn check_undeclared(&self, declared: &ClientCapabilities) -> Result<()> {
        let declared = declared.extensions.as_ref();
        let mut both = self
            .0
            .iter()
            .filter(|added| declared.is_some_and(|declared| declared.contains_key(&added.id)));
        match both.next() {
            Some(AddedExtension { id, .. }) => Err(Error::misuse(format!(
                "the extension `{id}` is declared by both `ClientBuilder::capabilities` and `ClientBuilder::extension`"
            ))),
            None => Ok(()),
        }
    }

    /// Declares the extensions in the capabilities of a modern caller, and removes them from those of a legacy one.
    pub(super) fn declare(&self, caller: &mut Caller) {
        if self.0.is_empty() {
            return;
        }
        let is_modern = caller.dialect.is_modern();
        let declared = caller.capabilities.extensions.get_or_insert_default();
        for AddedExtension { id, settings, .. } in &self.0 {
            match is_modern {
                true => drop(declared.insert(id.clone(), settings.clone())),
                false => drop(declared.remove(id)),
            }
        }
        if declared.is_empty() {
            caller.capabilities.extensions = None;
        }
    }

    /// Returns the extension that defines `result_type` for `method`.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if none does: the request did not declare it, so the result is invalid.
    pub(super) fn of_result(
        &self,
        result_type: &str,
        method: &str,
    ) -> Result<Arc<dyn ClientExtension>> {
        if let Some(extension) = self.find(result_type, method) {
            return Ok(extension.clone());
        }
        let mut types = self
            .0
            .iter()
            .flat_map(|added| added.extension.result_types());
        Err(Error::protocol(
            match types.any(|(known, _)| *known == result_type) {
                true => format!("`{result_type}` is not allowed as a result of `{method}`"),
                false => format!("unknown `resultType` `{}`", shortened(result_type)),
            },
        ))
    }

    fn find(&self, result_type: &str, method: &str) -> Option<&Arc<dyn ClientExtension>> {
        let extensions = self.0.iter().map(|added| &added.extension);
        let mut defining = extensions
            .filter(|extension| extension.result_types().contains(&(result_type, method)));
        defining.next()
    }

    /// Returns the methods with an `Mcp-Name` header, and the members that it mirrors.
    pub(super) fn name_members(&self) -> Vec<(String, String)> {
        let members = self
            .0
            .iter()
            .flat_map(|added| added.extension.name_members());
        members
            .map(|(method, member)| ((*method).to_owned(), (*member).to_owned()))
            .collect()
    }
}
