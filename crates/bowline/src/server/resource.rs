//! [`Resource`] and [`ResourceTemplate`]: data that clients read by URI, and the handlers that read it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::Dialect;
use bowline_core::shortened;
use bowline_types::{
    Annotations, CacheScope, ErrorCode, Icon, ReadResourceResult, ResourceContents, RpcError,
};

use super::contents::{Contents, IntoReadResult};
use super::extract::{HandlerRequirements, Parameters, RequiredState};
use super::function::IntoDefinition;
use super::handler::Handler;
use super::pagination::{CacheHints, ListEntry};
use super::string_arguments::StringArgsHandler;
use super::template::{UriTemplate, Variables};
use super::tool_error::ToolError;
use super::visibility::{Visibility, Visible};
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
#[must_use = "a resource does nothing until it is added with `Server::resource`"]
pub struct Resource {
    definition: bowline_types::Resource,
    reader: ResourceReader,
}

/// A URI template, and the handler of all resources whose URIs match it.
///
/// # Examples
///
/// ```
/// use bowline::{ResourceTemplate, Server};
///
/// let forecast = ResourceTemplate::raw("weather://{city}", "forecast", async |requested, _cx| {
///     Ok(format!("It is sunny in {}.", requested.variables.text("city").unwrap_or_default()))
/// })?;
/// let server = Server::new("weather", "1.0.0").resource_template(forecast);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a resource template does nothing until it is added with `Server::resource_template`"]
pub struct ResourceTemplate {
    definition: bowline_types::ResourceTemplate,
    template: Arc<UriTemplate>,
    reader: ResourceReader,
}

/// The handler of a [`Resource`] or a [`ResourceTemplate`].
pub trait ResourceHandler: Send + Sync + 'static {
    /// Reads the resource. The future is dropped if the request is cancelled.
    fn read<'a>(
        &'a self,
        requested: RequestedUri,
        cx: Context,
    ) -> BoxFuture<'a, Result<ReadResourceResult, RpcError>>;
}

/// The requested URI of `resources/read`. A handler takes it as an extractor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestedUri {
    /// The URI as in the request.
    pub uri: String,
    /// The values of the template variables; empty for a [`Resource`].
    pub variables: Variables,
}

/// The part that [`Resource`] and [`ResourceTemplate`] share.
#[derive(Clone)]
struct ResourceReader {
    handler: Arc<dyn ResourceHandler>,
    cache: Option<CacheHints>,
    states: Vec<RequiredState>,
    visibility: Visibility,
}

impl Resource {
    /// Creates a resource from an `async fn` that takes up to eight extractors ([`Extract`](super::Extract)).
    ///
    /// # Examples
    ///
    /// A closure that captures clones into its future:
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use bowline::Resource;
    ///
    /// let log = Arc::new(Mutex::new(String::from("started")));
    /// let resource = Resource::new("app://log", "log", move || {
    ///     let log = log.clone();
    ///     async move { log.lock().unwrap().clone() }
    /// });
    /// ```
    pub fn new<H, E>(uri: impl Into<String>, name: impl Into<String>, handler: H) -> Self
    where
        H: Handler<E, Output: IntoReadResult, Future: Send>,
        E: Parameters,
    {
        let requirements = HandlerRequirements::of::<E>();
        let definition = bowline_types::Resource::new(uri, name);
        let mut resource = Self::with_handler(
            definition,
            StringArgsHandler::<H, E>::new(handler, &requirements),
        );
        resource.reader.states = requirements.states().to_vec();
        resource
    }

    /// Creates a resource from a function of the URI.
    ///
    /// In the function, `?` makes a [`ToolError`] of any error.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::PathBuf;
    /// use bowline::Resource;
    ///
    /// let path = PathBuf::from("notes.txt");
    /// let notes = Resource::raw("docs://notes", "notes", move |_uri, _cx| {
    ///     let path = path.clone();
    ///     async move { Ok(std::fs::read_to_string(path)?) }
    /// });
    /// ```
    pub fn raw<H, F, R>(uri: impl Into<String>, name: impl Into<String>, handler: H) -> Self
    where
        H: Fn(String, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, ToolError>> + Send + 'static,
        R: IntoReadResult,
    {
        let handler = move |requested: RequestedUri, cx| handler(requested.uri, cx);
        Self::with_handler(bowline_types::Resource::new(uri, name), ResourceFn(handler))
    }

    /// Returns the resource that a function with `#[resource]` defines.
    pub fn of<M>(function: impl IntoDefinition<Self, M>) -> Self {
        function.into_definition()
    }

    /// Creates a resource with a constant text.
    pub fn text(uri: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let size = text.len();
        Self::fixed(uri.into(), name.into(), Contents::text(text), size)
    }

    /// Creates a resource with constant bytes.
    pub fn blob(uri: impl Into<String>, name: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        let size = bytes.as_ref().len();
        Self::fixed(uri.into(), name.into(), Contents::blob(bytes), size)
    }

    fn fixed(uri: String, name: String, contents: Contents, size: usize) -> Self {
        let handler = move |_, _| std::future::ready(Ok(contents.clone()));
        let mut definition = bowline_types::Resource::new(uri, name);
        definition.size = Some(size as u64);
        Self::with_handler(definition, ResourceFn(handler))
    }

    /// Creates a resource from its definition and a [`ResourceHandler`].
    pub fn with_handler(
        definition: bowline_types::Resource,
        handler: impl ResourceHandler,
    ) -> Self {
        Self {
            definition,
            reader: ResourceReader::new(handler),
        }
    }

    /// Sets the size of the contents in bytes.
    pub fn size(mut self, size: u64) -> Self {
        self.definition.size = Some(size);
        self
    }

    /// Returns the URI of the resource.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.definition.uri
    }

    pub(super) async fn read(
        &self,
        uri: String,
        cx: Context,
    ) -> Result<ReadResourceResult, RpcError> {
        let requested = RequestedUri {
            uri,
            variables: Variables::default(),
        };
        let mime_type = self.definition.mime_type.as_deref();
        self.reader.read(requested, mime_type, cx).await
    }
}

impl ResourceTemplate {
    /// Creates a resource template from an `async fn` that takes up to eight extractors
    /// ([`Extract`](super::Extract)).
    ///
    /// The fields of its [`Args`](super::Args) are the variables of the template; numbers and `bool`s are parsed from
    /// their text.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](crate::Error::Misuse) if `template` is not a valid [`UriTemplate`].
    ///
    /// # Examples
    ///
    /// A closure that captures clones into its future:
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use std::sync::Arc;
    /// use bowline::schemars::{self, JsonSchema};
    /// use bowline::{Args, ResourceTemplate};
    ///
    /// #[derive(serde::Deserialize, JsonSchema)]
    /// struct Name {
    ///     name: String,
    /// }
    ///
    /// # fn main() -> bowline::Result<()> {
    /// let knots = Arc::new(BTreeMap::from([("bowline", "holds, and comes undone")]));
    /// let template = ResourceTemplate::new("knots://{name}", "knot", move |Args(Name { name })| {
    ///     let knots = knots.clone();
    ///     async move { knots.get(&*name).copied().ok_or("no such knot") }
    /// })?;
    /// # Ok(()) }
    /// ```
    pub fn new<H, E>(
        template: impl Into<String>,
        name: impl Into<String>,
        handler: H,
    ) -> Result<Self>
    where
        H: Handler<E, Output: IntoReadResult, Future: Send>,
        E: Parameters,
    {
        let requirements = HandlerRequirements::of::<E>();
        let template = UriTemplate::parse(template)?;
        let handler = StringArgsHandler::<H, E>::new(handler, &requirements);
        let mut resources = Self::with_handler(template, name, handler);
        resources.reader.states = requirements.states().to_vec();
        Ok(resources)
    }

    /// Creates a resource template from a function of the URI and the values of its variables.
    ///
    /// To prevent path traversal, a URI does not match if a variable is `..` or contains an encoded slash.
    /// [`with_handler`](Self::with_handler) accepts a template that [allows](UriTemplate::allow_any_value) them.
    ///
    /// In the function, `?` makes a [`ToolError`] of any error.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::PathBuf;
    /// use bowline::ResourceTemplate;
    ///
    /// let folder = PathBuf::from("notes");
    /// let notes = ResourceTemplate::raw("notes://{name}", "notes", move |requested, _cx| {
    ///     let folder = folder.clone();
    ///     async move {
    ///         let name = requested.variables.text("name").ok_or("the name is missing")?;
    ///         Ok(std::fs::read_to_string(folder.join(name))?)
    ///     }
    /// })?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](crate::Error::Misuse) if `template` is not a valid [`UriTemplate`].
    pub fn raw<H, F, R>(
        template: impl Into<String>,
        name: impl Into<String>,
        handler: H,
    ) -> Result<Self>
    where
        H: Fn(RequestedUri, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, ToolError>> + Send + 'static,
        R: IntoReadResult,
    {
        let template = UriTemplate::parse(template)?;
        Ok(Self::with_handler(template, name, ResourceFn(handler)))
    }

    /// Returns the resource template that a function with `#[resource]` defines.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](crate::Error::Misuse) if its URI template is not a valid [`UriTemplate`].
    pub fn of<M>(function: impl IntoDefinition<Result<Self>, M>) -> Result<Self> {
        function.into_definition()
    }

    /// Creates a resource template from a [`UriTemplate`] and a [`ResourceHandler`].
    pub fn with_handler(
        template: UriTemplate,
        name: impl Into<String>,
        handler: impl ResourceHandler,
    ) -> Self {
        Self {
            definition: bowline_types::ResourceTemplate::new(template.as_str(), name),
            template: Arc::new(template),
            reader: ResourceReader::new(handler),
        }
    }

    /// Returns the URI template.
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
        let requested = RequestedUri { uri, variables };
        let mime_type = self.definition.mime_type.as_deref();
        self.reader.read(requested, mime_type, cx).await
    }
}

/// The setters that both types share.
macro_rules! resource_setters {
    ($($name:ident)*) => {$(
        impl $name {
            /// Sets the title that user interfaces show.
            pub fn title(mut self, title: impl Into<String>) -> Self {
                self.definition.title = Some(title.into());
                self
            }

            /// Sets the description, a hint to models.
            pub fn description(mut self, description: impl Into<String>) -> Self {
                self.definition.description = Some(description.into());
                self
            }

            /// Sets the media type, which is also the default of its contents.
            pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
                self.definition.mime_type = Some(mime_type.into());
                self
            }

            /// Sets the annotations, such as audience and priority.
            pub fn annotations(mut self, annotations: Annotations) -> Self {
                self.definition.annotations = Some(annotations);
                self
            }

            /// Sets the icons that user interfaces may show.
            pub fn icons(mut self, icons: impl IntoIterator<Item = Icon>) -> Self {
                self.definition.icons = Some(icons.into_iter().collect());
                self
            }

            /// Sets `ttlMs` and `cacheScope` of the result of `resources/read`.
            pub fn cache(mut self, ttl: Duration, scope: CacheScope) -> Self {
                self.reader.cache = Some(CacheHints::new(ttl, scope));
                self
            }

            /// Hides it from callers for which `filter` returns false: it is not listed, and the answer is the same as
            /// if it did not exist, also to requests for completions. Subscribers get its updates if they see it both
            /// when they subscribe and when it is updated.
            ///
            /// # Examples
            ///
            /// ```
            /// use bowline::Resource;
            ///
            /// let owner = "ada".to_owned();
            /// let diary = Resource::text("diary://today", "diary", "It rained.")
            ///     .visible_to(move |cx| cx.principal().name() == Some(&owner));
            /// ```
            pub fn visible_to(
                mut self,
                filter: impl Fn(&Context) -> bool + Send + Sync + 'static,
            ) -> Self {
                self.reader.visibility = Visibility::filtered(filter);
                self
            }

            pub(super) fn states(&self) -> &[RequiredState] {
                &self.reader.states
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

/// A template that was not checked yet, as `Server::resource_template` takes it.
impl From<ResourceTemplate> for Result<ResourceTemplate> {
    fn from(template: ResourceTemplate) -> Self {
        Ok(template)
    }
}

impl ListEntry for Resource {
    type Definition = bowline_types::Resource;
    const MEMBER: &'static str = "resources";

    fn list_definition(&self, _: &str, _: &Dialect) -> bowline_types::Resource {
        self.definition.clone()
    }
}

impl Visible for Resource {
    fn visibility(&self) -> &Visibility {
        &self.reader.visibility
    }
}

impl ListEntry for ResourceTemplate {
    type Definition = bowline_types::ResourceTemplate;
    const MEMBER: &'static str = "resourceTemplates";

    fn list_definition(&self, _: &str, _: &Dialect) -> bowline_types::ResourceTemplate {
        self.definition.clone()
    }
}

impl Visible for ResourceTemplate {
    fn visibility(&self) -> &Visibility {
        &self.reader.visibility
    }
}

impl ResourceReader {
    fn new(handler: impl ResourceHandler) -> Self {
        Self {
            handler: Arc::new(handler),
            cache: None,
            states: Vec::new(),
            visibility: Visibility::default(),
        }
    }

    async fn read(
        &self,
        requested: RequestedUri,
        mime_type: Option<&str>,
        cx: Context,
    ) -> Result<ReadResourceResult, RpcError> {
        let uri = requested.uri.clone();
        let mut result = self.handler.read(requested, cx).await?;
        // The specification requires an error for a resource that does not exist, not empty `contents`.
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
            // A shared cache would show the resource to callers who may not see it.
            let scope = match self.visibility.is_public() {
                true => cache.scope.clone(),
                false => CacheScope::PRIVATE,
            };
            result.cache_scope.get_or_insert(scope);
        }
        Ok(result)
    }
}

/// The handler for a function of the [`RequestedUri`].
struct ResourceFn<H>(H);

impl<H, F, R> ResourceHandler for ResourceFn<H>
where
    H: Fn(RequestedUri, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: IntoReadResult,
{
    fn read<'a>(
        &'a self,
        requested: RequestedUri,
        cx: Context,
    ) -> BoxFuture<'a, Result<ReadResourceResult, RpcError>> {
        let uri = requested.uri.clone();
        let read = self.0(requested, cx);
        Box::pin(async move { read.await.into_read_result(&uri) })
    }
}

/// Returns the error for a resource that does not exist. Its code is converted to that of the caller's era.
#[must_use]
pub fn not_found(uri: &str) -> RpcError {
    let why = format!("resource not found: `{}`", shortened(uri));
    RpcError::new(ErrorCode::RESOURCE_NOT_FOUND, why).with_data(serde_json::json!({ "uri": uri }))
}
