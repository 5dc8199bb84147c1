//! [`Host`], which answers elicitation, sampling and roots requests of a server.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use bowline_core::era::Request;
use bowline_core::http::RedactedUrl;
use bowline_core::input::{InputKind, RawInputRequest, check_form, check_tool_uses, check_url};
use bowline_core::json::Object;
use bowline_core::{Notification, Outcome};
use bowline_types::{
    CapabilitySettings, ClientCapabilities, CreateMessageRequestParams, CreateMessageResult,
    ElicitAction, ElicitRequestFormParams, ElicitRequestParams, ElicitRequestUrlParams,
    ElicitResult, ElicitSchema, ElicitationCapability, ErrorCode, InputRequest, Json,
    ListRootsResult, Root, RootsCapability, RpcError, SamplingCapability, SamplingContent,
};
use serde::Serialize;

use crate::exchange::{BoxFuture, Context, NotifiedContext, Params, Responder};
use crate::telemetry::Telemetry;

/// Handlers for the server's requests to the client: elicitation, sampling and roots.
///
/// The client declares the capabilities for the functions that are set. The same functions answer the
/// `inputRequests` of the modern era and the server-to-client requests of the legacy era.
///
/// # Cancel safety
///
/// The future of a function is dropped when the server cancels its request, and when the call that the request
/// belongs to is dropped.
///
/// # Examples
///
/// ```
/// use bowline::client::Host;
/// use bowline::types::ElicitResult;
/// use serde_json::json;
///
/// # async fn example(server: bowline::Server) -> bowline::Result<()> {
/// let host = Host::new().elicitation(async |form| {
///     println!("{}", form.message);
///     ElicitResult::accept(json!({"name": "Ada"}))
/// });
/// let client = bowline::Client::in_process(&server).host(host).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "a host does nothing until it is passed to `ClientBuilder::host`"]
pub struct Host {
    form: Option<HostFn<ElicitRequestFormParams, ElicitResult>>,
    url: Option<HostFn<ElicitRequestUrlParams, ElicitResult>>,
    sampling: Option<HostFn<CreateMessageRequestParams, Result<CreateMessageResult, RpcError>>>,
    sampling_tools: bool,
    sampling_context: bool,
    roots: Option<HostFn<(), Vec<Root>>>,
    roots_list_changed: bool,
}

/// A function that answers one kind of request.
type HostFn<Q, A> = Arc<dyn Fn(Q) -> BoxFuture<'static, A> + Send + Sync>;

impl Host {
    /// Creates a host without any capability.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the function that shows a form to the user (form mode elicitation).
    ///
    /// Fields that are missing from an accepted form are set to the defaults of the requested schema.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline::client::Host;
    /// use bowline::types::ElicitResult;
    /// use serde_json::json;
    ///
    /// let user = Arc::new(String::from("Ada"));
    /// let host = Host::new().elicitation(move |form| {
    ///     let user = user.clone();
    ///     async move {
    ///         println!("{}", form.message);
    ///         ElicitResult::accept(json!({"name": *user}))
    ///     }
    /// });
    /// ```
    pub fn elicitation<F>(
        mut self,
        handler: impl Fn(ElicitRequestFormParams) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ElicitResult> + Send + 'static,
    {
        self.form = Some(Arc::new(move |params| Box::pin(handler(params))));
        self
    }

    /// Sets the function that asks the user for consent to open a URL (URL mode elicitation). It must not open the URL
    /// before the user agrees.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::client::Host;
    /// use bowline::types::{ElicitAction, ElicitResult};
    ///
    /// let trusted = String::from("https://pay.example.com/");
    /// let host = Host::new().elicitation_url(move |asked| {
    ///     let action = match asked.url.starts_with(&trusted) {
    ///         true => ElicitAction::Accept,
    ///         false => ElicitAction::Decline,
    ///     };
    ///     async move { ElicitResult::new(action) }
    /// });
    /// ```
    pub fn elicitation_url<F>(
        mut self,
        handler: impl Fn(ElicitRequestUrlParams) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ElicitResult> + Send + 'static,
    {
        self.url = Some(Arc::new(move |params| Box::pin(handler(params))));
        self
    }

    /// Sets the function that samples a model (`sampling/createMessage`).
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::client::Host;
    /// use bowline::types::{CreateMessageResult, TextContent};
    ///
    /// let model = String::from("a-model");
    /// let host = Host::new().sampling(move |asked| {
    ///     let model = model.clone();
    ///     async move {
    ///         println!("{} messages for {model}", asked.messages.len());
    ///         Ok(CreateMessageResult::new(model, TextContent::new("Hello.")))
    ///     }
    /// });
    /// ```
    pub fn sampling<F>(
        mut self,
        handler: impl Fn(CreateMessageRequestParams) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<CreateMessageResult, RpcError>> + Send + 'static,
    {
        self.sampling = Some(Arc::new(move |params| Box::pin(handler(params))));
        self
    }

    /// Declares `sampling.tools`: servers may pass tools to the model.
    pub fn sampling_tools(mut self) -> Self {
        self.sampling_tools = true;
        self
    }

    /// Declares `sampling.context`: servers may request context of theirs or of all servers (`includeContext`).
    pub fn sampling_context(mut self) -> Self {
        self.sampling_context = true;
        self
    }

    /// Sets the function that returns the roots (`roots/list`).
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{client::Host, types::Root};
    ///
    /// let roots = vec![Root::new("file:///project")];
    /// let host = Host::new().roots(move || {
    ///     let roots = roots.clone();
    ///     async move { roots }
    /// });
    /// ```
    pub fn roots<F>(mut self, handler: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Vec<Root>> + Send + 'static,
    {
        self.roots = Some(Arc::new(move |()| Box::pin(handler())));
        self
    }

    /// Declares `roots.listChanged`: the application calls [`Client::roots_changed`](super::Client::roots_changed) when
    /// the roots change.
    pub fn roots_list_changed(mut self) -> Self {
        self.roots_list_changed = true;
        self
    }

    /// Returns the capabilities for the functions that are set.
    pub(super) fn capabilities(&self) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        if self.form.is_some() || self.url.is_some() {
            let mut elicitation = ElicitationCapability::default();
            elicitation.form = self.form.is_some().then(CapabilitySettings::default);
            elicitation.url = self.url.is_some().then(CapabilitySettings::default);
            capabilities.elicitation = Some(elicitation);
        }
        if self.sampling.is_some() {
            let mut sampling = SamplingCapability::default();
            sampling.tools = self.sampling_tools.then(CapabilitySettings::default);
            sampling.context = self.sampling_context.then(CapabilitySettings::default);
            capabilities.sampling = Some(sampling);
        }
        if self.roots.is_some() {
            let roots = capabilities.roots.insert(RootsCapability::default());
            roots.list_changed = self.roots_list_changed.then_some(true);
        }
        capabilities
    }

    async fn answer(&self, input_request: RawInputRequest) -> Outcome {
        input_request
            .check_capabilities(&self.capabilities())
            .map_err(|missing| {
                RpcError::new(unsupported_code(&input_request), missing.to_string())
            })?;
        let asked = input_request.to_input_request().map_err(|error| {
            let why = format!("failed to decode the params: {error}");
            RpcError::new(ErrorCode::INVALID_PARAMS, why)
        })?;
        match (asked, self) {
            (InputRequest::Elicit(params), Self { form, url, .. }) => match (*params, form, url) {
                (ElicitRequestParams::Form(params), Some(form), _) => {
                    let schema = params.requested_schema.clone();
                    encode(&apply_form_defaults(form(params).await, &schema)?)
                }
                (ElicitRequestParams::Url(params), _, Some(url)) => {
                    check_url(&params.url).map_err(|unfit| {
                        RpcError::new(ErrorCode::INVALID_PARAMS, unfit.to_string())
                    })?;
                    let mut result = url(params).await;
                    result.content = None;
                    encode(&result)
                }
                _ => Err(unsupported(&input_request)),
            },
            (
                InputRequest::CreateMessage(params),
                Self {
                    sampling: Some(sampling),
                    ..
                },
            ) => {
                check_tool_uses(&params.messages).map_err(|violation| {
                    RpcError::new(ErrorCode::INVALID_PARAMS, violation.to_string())
                })?;
                let has_tools = params.tools.is_some();
                let message = sampling(*params).await?;
                encode(&if has_tools {
                    message
                } else {
                    single_block(message)?
                })
            }
            (
                InputRequest::ListRoots(_),
                Self {
                    roots: Some(roots), ..
                },
            ) => {
                let roots = roots(()).await;
                if let Some(root) = roots.iter().find(|root| !root.is_file()) {
                    let uri = RedactedUrl::new(&root.uri);
                    let why = format!("the root `{uri}` is not a `file://` URI");
                    return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why));
                }
                encode(&ListRootsResult::new(roots))
            }
            _ => Err(unsupported(&input_request)),
        }
    }
}

impl Responder for Host {
    fn respond<'a>(&'a self, request: Request, _: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            match RawInputRequest::from_request(&request.method, Some(request.params.into_json())) {
                Some(input_request) => self.answer(input_request).await,
                None => {
                    let why = format!("method not found: `{}`", request.method);
                    Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, why))
                }
            }
        })
    }

    fn required_scopes(&self, _: &str, _: Option<&Params>) -> Vec<String> {
        Vec::new() // servers have no scopes
    }

    fn check(&self) -> crate::Result<()> {
        Ok(())
    }

    fn notified(&self, _: &Notification, _: &NotifiedContext) {} // sent by clients only

    fn telemetry(&self) -> Option<&Telemetry> {
        None
    }

    fn open_calls(&self) -> usize {
        0
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("answers", &self.capabilities())
            .finish_non_exhaustive()
    }
}

/// Adds the defaults of fields that an accepted form leaves out, and validates the result.
fn apply_form_defaults(
    mut result: ElicitResult,
    schema: &ElicitSchema,
) -> Result<ElicitResult, RpcError> {
    if result.action != ElicitAction::Accept {
        result.content = None;
        return Ok(result);
    }
    let content = result.content.take().unwrap_or_else(Json::empty_object);
    let ours = |why: String| RpcError::new(ErrorCode::INTERNAL_ERROR, why);
    let content = Object::read(&content)
        .map_err(|_| ours("expected an object as form content from the host".into()))?;
    let mut filled: Vec<(&str, Json)> = content
        .iter()
        .map(|(name, value)| (name, value.clone()))
        .collect();
    // A set: the server chooses the number of fields, and a linear search for each would be quadratic.
    let mut names: BTreeSet<&str> = content.iter().map(|(name, _)| name).collect();
    for (name, field) in &schema.properties.0 {
        let field = serde_json::to_value(field).unwrap_or_default();
        if let Some(default) = field.get("default")
            && names.insert(name)
        {
            filled.push((name, default.clone().into()));
        }
    }
    let filled = filled.iter().map(|(name, value)| (*name, value));
    let content = Json::object(filled);
    check_form(schema, &content)
        .map_err(|unfit| ours(format!("invalid form content from the host: {unfit}")))?;
    result.content = Some(content);
    Ok(result)
}

/// Returns the result with a single content block, the only form without tools.
fn single_block(mut message: CreateMessageResult) -> Result<CreateMessageResult, RpcError> {
    if let SamplingContent::Many(blocks) = &mut message.content {
        let (Some(block), true) = (blocks.pop(), blocks.is_empty()) else {
            let why = "expected one content block from the host, because the request has no tools";
            return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why));
        };
        message.content = SamplingContent::One(block);
    }
    Ok(message)
}

/// Returns the error code for a request whose capability this client does not declare.
fn unsupported_code(input_request: &RawInputRequest) -> ErrorCode {
    match input_request.kind {
        InputKind::Elicitation => ErrorCode::INVALID_PARAMS,
        InputKind::Sampling | InputKind::Roots => ErrorCode::METHOD_NOT_FOUND,
    }
}

fn unsupported(input_request: &RawInputRequest) -> RpcError {
    let why = format!("this client does not support `{}`", input_request.kind);
    RpcError::new(unsupported_code(input_request), why)
}

fn encode(answer: &impl Serialize) -> Outcome {
    Json::encode(answer).map_err(|error| {
        let why = format!("failed to serialize the host's result: {error}");
        RpcError::new(ErrorCode::INTERNAL_ERROR, why)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> ElicitSchema {
        serde_json::from_value(json!({
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "age": {"type": "integer", "default": 30},
                "vegan": {"type": "boolean", "default": false},
            },
            "required": ["name", "age"],
        }))
        .unwrap()
    }

    #[test]
    fn missing_fields_of_an_accepted_form_get_their_defaults() {
        let filled = apply_form_defaults(
            ElicitResult::accept(json!({"name": "Ada", "age": 36})),
            &schema(),
        );

        let content: serde_json::Value = filled.unwrap().content.unwrap().decode().unwrap();
        assert_eq!(content, json!({"name": "Ada", "age": 36, "vegan": false}));
    }

    /// Takes a minute if each field is found by a linear search.
    #[test]
    fn a_form_of_very_many_fields_is_completed_in_linear_time() {
        let names: Vec<_> = (0..40_000).map(|at| format!("f{at}")).collect();
        let field = json!({"type": "boolean", "default": false});
        let fields: serde_json::Map<_, _> = names
            .iter()
            .map(|name| (name.clone(), field.clone()))
            .collect();
        let schema = json!({"type": "object", "properties": fields, "required": names});
        let schema = serde_json::from_value(schema).unwrap();

        let filled = apply_form_defaults(ElicitResult::accept(json!({})), &schema).unwrap();

        let content: serde_json::Value = filled.content.unwrap().decode().unwrap();
        assert_eq!(content.as_object().unwrap().len(), names.len());
    }

    #[test]
    fn a_required_field_without_a_default_must_be_filled_in() {
        let error = apply_form_defaults(ElicitResult::accept(json!({})), &schema()).unwrap_err();

        assert_eq!(
            error.message,
            "invalid form content from the host: the field `name` is required"
        );
    }

    #[test]
    fn a_declined_form_has_no_content() {
        let mut declined = ElicitResult::accept(json!({"name": "Ada"}));
        declined.action = ElicitAction::Decline;

        assert_eq!(
            apply_form_defaults(declined, &schema()).unwrap().content,
            None
        );
    }

    #[test]
    fn a_host_declares_exactly_what_it_answers() {
        let declined = async |_| ElicitResult::new(ElicitAction::Decline);
        let declared = |host: &Host| serde_json::to_value(host.capabilities()).unwrap();

        assert_eq!(declared(&Host::new()), json!({}));
        assert_eq!(
            declared(&Host::new().elicitation(declined).roots(async || vec![])),
            json!({"elicitation": {"form": {}}, "roots": {}})
        );
        let samples = async |_| Err(RpcError::new(ErrorCode::USER_REJECTED, "no"));
        assert_eq!(
            declared(
                &Host::new()
                    .elicitation_url(async |_| ElicitResult::new(ElicitAction::Accept))
                    .sampling(samples)
                    .sampling_tools()
                    .sampling_context()
            ),
            json!({"elicitation": {"url": {}}, "sampling": {"tools": {}, "context": {}}})
        );
    }
}
