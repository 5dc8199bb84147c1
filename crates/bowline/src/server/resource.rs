//! Resources: what can be read, at one URI or at all URIs of a template.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::Dialect;
use bowline_types::{
    Annotations, CacheScope, ErrorCode, Icon, ReadResourceResult, ResourceContents, RpcError,
};

use super::contents::{Contents, IntoReadResult};
use super::extract::{NeededState, Needs, Parameters};
use super::handler::Handler;
use super::page::{Cache, Listed};
use super::template::{UriTemplate, Variables};
use super::texts::OfTexts;
use crate::Result;
use crate::exchange::{BoxFuture, Context};

/// A resource and the handler behind it.
///
/// # Examples
///
/// ```
/// use bowline::{Resource, Server};
///
/// let readme = Resource::text("docs://readme", "readme", "Read me.").mime_type("text/plain");
/// let clock = Resource::raw("clock://now", "now", async |_uri, _cx| Ok("noon"));
/// let server = Server::new("library", "1.0.0").resource(readme).resource(clock);
/// ```
#[derive(Clone)]
#[must_use = "a resource is offered by `Server::resource`"]
pub struct Resource {
    definition: bowline_types::Resource,
    reading: Reading,
}

/// All resources whose URIs fit a template, and the handler behind them.
///
/// # Examples
///
/// ```
/// use bowline::{ResourceTemplate, Server};
///
/// let forecast = ResourceTemplate::raw("weather://{city}", "forecast", async |asked, _cx| {
///     Ok(format!("It is sunny in {}.", asked.variables.text("city").unwrap_or_default()))
/// })?;
/// let server = Server::new("weather", "1.0.0").resource_template(forecast);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a template is offered by `Server::resource_template`"]
pub struct ResourceTemplate {
    definition: bowline_types::ResourceTemplate,
    template: Arc<UriTemplate>,
    reading: Reading,
}

/// What is behind a [`Resource`] or a [`ResourceTemplate`].
pub trait ResourceHandler: Send + Sync + 'static {
    /// Reads the resource. The future is dropped if the caller gives up.
    fn read<'a>(
        &'a self,
        asked: AskedUri,
        cx: Context,
    ) -> BoxFuture<'a, Result<ReadResourceResult, RpcError>>;
}

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AskedUri {
    /// The URI, as the caller wrote it.
    pub uri: String,
    /// What the variables of the template stand for in it.
    pub variables: Variables,
}

/// How something is read, whether it is one resource or many.
#[derive(Clone)]
struct Reading {
    handler: Arc<dyn ResourceHandler>,
    cache: Option<Cache>,
    states: Vec<NeededState>,
}

impl Resource {
    /// A resource whose handler is an `async fn` of up to eight extractors, each an
    /// [`Extract`](super::Extract).
    pub fn new<H, E>(uri: impl Into<String>, name: impl Into<String>, handler: H) -> Self
    where
        H: Handler<E, Output: IntoReadResult, Future: Send>,
        E: Parameters,
    {
        let needs = Needs::of::<E>();
        let definition = bowline_types::Resource::new(uri, name);
        let mut resource = Self::with_handler(definition, OfTexts::<H, E>::new(handler, &needs));
        resource.reading.states = needs.states().to_vec();
        resource
    }

    /// A resource that a handler reads; it gets the URI.
    pub fn raw<H, F, R>(uri: impl Into<String>, name: impl Into<String>, handler: H) -> Self
    where
        H: Fn(String, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: IntoReadResult,
    {
        let handler = move |asked: AskedUri, cx| handler(asked.uri, cx);
        Self::with_handler(bowline_types::Resource::new(uri, name), Function(handler))
    }

    /// A text that does not change.
    pub fn text(uri: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let size = text.len();
        Self::fixed(uri.into(), name.into(), Contents::text(text), size)
    }

    /// Bytes that do not change.
    pub fn blob(uri: impl Into<String>, name: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        let size = bytes.as_ref().len();
        Self::fixed(uri.into(), name.into(), Contents::blob(bytes), size)
    }

    fn fixed(uri: String, name: String, contents: Contents, size: usize) -> Self {
        let handler = move |_, _| std::future::ready(Ok(contents.clone()));
        let mut definition = bowline_types::Resource::new(uri, name);
        definition.size = Some(size as u64);
        Self::with_handler(definition, Function(handler))
    }

    /// A resource with a handler of one's own.
    pub fn with_handler(
        definition: bowline_types::Resource,
        handler: impl ResourceHandler,
    ) -> Self {
        Self {
            definition,
            reading: Reading::by(handler),
        }
    }

    /// Says how many bytes there are to read.
    pub fn size(mut self, size: u64) -> Self {
        self.definition.size = Some(size);
        self
    }

    /// Where it is.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.definition.uri
    }

    pub(super) async fn read(
        &self,
        uri: String,
        cx: Context,
    ) -> Result<ReadResourceResult, RpcError> {
        let asked = AskedUri {
            uri,
            variables: Variables::default(),
        };
        let mime_type = self.definition.mime_type.as_deref();
        self.reading.read(asked, mime_type, cx).await
    }
}

impl ResourceTemplate {
    /// Resources whose handler is an `async fn` of up to eight extractors, each an
    /// [`Extract`](super::Extract).
    ///
    /// The fields of its [`Args`](super::Args) are the variables of the template: text, or a number or a
    /// `bool` that is read from it.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](crate::Error::Misuse) if `template` is not a usable [`UriTemplate`].
    pub fn new<H, E>(
        template: impl Into<String>,
        name: impl Into<String>,
        handler: H,
    ) -> Result<Self>
    where
        H: Handler<E, Output: IntoReadResult, Future: Send>,
        E: Parameters,
    {
        let needs = Needs::of::<E>();
        let template = UriTemplate::parse(template)?;
        let handler = OfTexts::<H, E>::new(handler, &needs);
        let mut resources = Self::with_handler(template, name, handler);
        resources.reading.states = needs.states().to_vec();
        Ok(resources)
    }

    /// Resources that a handler reads; it gets the URI and what the variables stand for in it.
    ///
    /// A variable never leads out of where it stands: a URI in which one is `..` or hides a slash does
    /// not fit. [`with_handler`](Self::with_handler) takes a template that is less strict.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](crate::Error::Misuse) if `template` is not a usable [`UriTemplate`].
    pub fn raw<H, F, R>(
        template: impl Into<String>,
        name: impl Into<String>,
        handler: H,
    ) -> Result<Self>
    where
        H: Fn(AskedUri, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: IntoReadResult,
    {
        let template = UriTemplate::parse(template)?;
        Ok(Self::with_handler(template, name, Function(handler)))
    }

    /// Resources with a handler of one's own.
    pub fn with_handler(
        template: UriTemplate,
        name: impl Into<String>,
        handler: impl ResourceHandler,
    ) -> Self {
        Self {
            definition: bowline_types::ResourceTemplate::new(template.as_str(), name),
            template: Arc::new(template),
            reading: Reading::by(handler),
        }
    }

    /// The template.
    #[must_use]
    pub fn uri_template(&self) -> &UriTemplate {
        &self.template
    }

    pub(super) async fn read(
        &self,
        uri: String,
        variables: Variables,
        cx: Context,
    ) -> Result<ReadResourceResult, RpcError> {
        let asked = AskedUri { uri, variables };
        let mime_type = self.definition.mime_type.as_deref();
        self.reading.read(asked, mime_type, cx).await
    }
}

/// The setters that one resource and many have in common.
macro_rules! resource_setters {
    ($($name:ident)*) => {$(
        impl $name {
            /// Names it, for people.
            pub fn title(mut self, title: impl Into<String>) -> Self {
                self.definition.title = Some(title.into());
                self
            }

            /// Says what it is, for a model.
            pub fn description(mut self, description: impl Into<String>) -> Self {
                self.definition.description = Some(description.into());
                self
            }

            /// Says of what media type it is, unless its contents say otherwise.
            pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
                self.definition.mime_type = Some(mime_type.into());
                self
            }

            /// Says for whom it is, and how much it matters.
            pub fn annotations(mut self, annotations: Annotations) -> Self {
                self.definition.annotations = Some(annotations);
                self
            }

            /// Says how it may be shown.
            pub fn icons(mut self, icons: impl IntoIterator<Item = Icon>) -> Self {
                self.definition.icons = Some(icons.into_iter().collect());
                self
            }

            /// Says how long what was read stays fresh, and who may share it.
            pub fn cache(mut self, ttl: Duration, scope: CacheScope) -> Self {
                self.reading.cache = Some(Cache::new(ttl, scope));
                self
            }

            pub(super) fn states(&self) -> &[NeededState] {
                &self.reading.states
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("definition", &self.definition)
                    .finish_non_exhaustive()
            }
        }
    )*};
}

resource_setters!(Resource ResourceTemplate);

/// A function that makes a resource stands for the resource.
impl<F: FnOnce() -> Self> From<F> for Resource {
    fn from(make: F) -> Self {
        make()
    }
}

/// A template, or what makes one and may fail to.
pub trait IntoResourceTemplate {
    /// The template.
    ///
    /// # Errors
    ///
    /// If there is none, because its text is not that of a template.
    fn into_resource_template(self) -> Result<ResourceTemplate>;
}

impl IntoResourceTemplate for ResourceTemplate {
    fn into_resource_template(self) -> Result<Self> {
        Ok(self)
    }
}

impl IntoResourceTemplate for Result<ResourceTemplate> {
    fn into_resource_template(self) -> Self {
        self
    }
}

/// A function that makes a template stands for the template.
impl<F: FnOnce() -> R, R: IntoResourceTemplate> IntoResourceTemplate for F {
    fn into_resource_template(self) -> Result<ResourceTemplate> {
        self().into_resource_template()
    }
}

impl Listed for Resource {
    type Definition = bowline_types::Resource;
    const MEMBER: &'static str = "resources";

    fn listed_as(&self, _: &str, _: &Dialect) -> bowline_types::Resource {
        self.definition.clone()
    }
}

impl Listed for ResourceTemplate {
    type Definition = bowline_types::ResourceTemplate;
    const MEMBER: &'static str = "resourceTemplates";

    fn listed_as(&self, _: &str, _: &Dialect) -> bowline_types::ResourceTemplate {
        self.definition.clone()
    }
}

impl Reading {
    fn by(handler: impl ResourceHandler) -> Self {
        Self {
            handler: Arc::new(handler),
            cache: None,
            states: Vec::new(),
        }
    }

    async fn read(
        &self,
        asked: AskedUri,
        mime_type: Option<&str>,
        cx: Context,
    ) -> Result<ReadResourceResult, RpcError> {
        let uri = asked.uri.clone();
        let mut result = self.handler.read(asked, cx).await?;
        // What has no contents does not exist, and must be told apart from what is empty.
        if result.contents.is_empty() {
            return Err(not_found(&uri));
        }
        for contents in &mut result.contents {
            let own = match contents {
                ResourceContents::Text(text) => &mut text.mime_type,
                ResourceContents::Blob(blob) => &mut blob.mime_type,
            };
            if own.is_none() {
                *own = mime_type.map(str::to_owned);
            }
        }
        if let Some(cache) = &self.cache {
            result.ttl_ms.get_or_insert(cache.ttl_ms);
            result
                .cache_scope
                .get_or_insert_with(|| cache.scope.clone());
        }
        Ok(result)
    }
}

/// A function as a handler.
struct Function<H>(H);

impl<H, F, R> ResourceHandler for Function<H>
where
    H: Fn(AskedUri, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, RpcError>> + Send + 'static,
    R: IntoReadResult,
{
    fn read<'a>(
        &'a self,
        asked: AskedUri,
        cx: Context,
    ) -> BoxFuture<'a, Result<ReadResourceResult, RpcError>> {
        let uri = asked.uri.clone();
        let read = self.0(asked, cx);
        Box::pin(async move { read.await?.into_read_result(&uri) })
    }
}

/// The error for a resource that does not exist. Callers of each era get the code that theirs has for it.
#[must_use]
pub fn not_found(uri: &str) -> RpcError {
    RpcError::new(ErrorCode::RESOURCE_NOT_FOUND, "there is no such resource")
        .with_data(serde_json::json!({ "uri": uri }))
}
