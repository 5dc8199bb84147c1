//! The host: how a client answers when a server asks.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use bowline_core::Outcome;
use bowline_core::era::{Caller, Request};
use bowline_core::input::{Kind, Question, check_form, check_tool_uses, check_url};
use bowline_core::json::Object;
use bowline_types::{
    ClientCapabilities, CreateMessageRequestParams, CreateMessageResult, ElicitAction,
    ElicitRequestFormParams, ElicitRequestParams, ElicitRequestUrlParams, ElicitResult,
    ElicitSchema, ElicitationCapability, ErrorCode, InputRequest, Json, ListRootsResult, Root,
    RootsCapability, RpcError, SamplingCapability, SamplingContent, Settings,
};
use serde::Serialize;

use crate::exchange::{BoxFuture, Context, Responder};

/// What a client answers when a server asks: the user, a model, a list of folders.
///
/// What it can answer is what the client declares, so there is nothing to declare by hand. The same
/// functions answer in every era.
///
/// # Cancel safety
///
/// The future of an answer is dropped when the server takes its question back, and when the call that
/// the server works on is dropped.
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
/// let client = bowline::Client::to(&server).host(host).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "a host answers for a client that is given it by `Connect::host`"]
pub struct Host {
    form: Option<Answers<ElicitRequestFormParams, ElicitResult>>,
    url: Option<Answers<ElicitRequestUrlParams, ElicitResult>>,
    sampling: Option<Answers<CreateMessageRequestParams, Result<CreateMessageResult, RpcError>>>,
    sampling_tools: bool,
    sampling_context: bool,
    roots: Option<Answers<(), Vec<Root>>>,
    roots_change: bool,
}

/// A function that answers one kind of question.
type Answers<Q, A> = Arc<dyn Fn(Q) -> BoxFuture<'static, A> + Send + Sync>;

impl Host {
    /// A host that answers nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows the user a form.
    ///
    /// Fields that an accepted form leaves out get the defaults that the server suggests.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::client::Host;
    /// use bowline::types::ElicitResult;
    /// use serde_json::json;
    ///
    /// let host = Host::new().elicitation(async |form| {
    ///     println!("{}", form.message);
    ///     ElicitResult::accept(json!({"name": "Ada"}))
    /// });
    /// ```
    pub fn elicitation<F>(
        mut self,
        answer: impl Fn(ElicitRequestFormParams) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ElicitResult> + Send + 'static,
    {
        self.form = Some(Arc::new(move |params| Box::pin(answer(params))));
        self
    }

    /// Asks the user for consent to visit a URL. Do not visit it before the user agrees.
    pub fn elicitation_url<F>(
        mut self,
        answer: impl Fn(ElicitRequestUrlParams) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ElicitResult> + Send + 'static,
    {
        self.url = Some(Arc::new(move |params| Box::pin(answer(params))));
        self
    }

    /// Has a model write something.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::client::Host;
    /// use bowline::types::{CreateMessageResult, TextContent};
    ///
    /// let host = Host::new().sampling(async |asked| {
    ///     println!("{} messages", asked.messages.len());
    ///     Ok(CreateMessageResult::new("a-model", TextContent::new("Hello.")))
    /// });
    /// ```
    pub fn sampling<F>(
        mut self,
        answer: impl Fn(CreateMessageRequestParams) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<CreateMessageResult, RpcError>> + Send + 'static,
    {
        self.sampling = Some(Arc::new(move |params| Box::pin(answer(params))));
        self
    }

    /// Lets servers hand tools to the model.
    pub fn sampling_tools(mut self) -> Self {
        self.sampling_tools = true;
        self
    }

    /// Lets servers have what they and others told this client added to what the model is asked.
    pub fn sampling_context(mut self) -> Self {
        self.sampling_context = true;
        self
    }

    /// Tells which folders servers may work in.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{client::Host, types::Root};
    ///
    /// let host = Host::new().roots(async || vec![Root::new("file:///project")]);
    /// ```
    pub fn roots<F>(mut self, answer: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Vec<Root>> + Send + 'static,
    {
        self.roots = Some(Arc::new(move |()| Box::pin(answer())));
        self
    }

    /// Promises that [`Client::roots_changed`](super::Client::roots_changed) will tell when the roots
    /// change.
    pub fn roots_change(mut self) -> Self {
        self.roots_change = true;
        self
    }

    async fn answer(&self, question: Question) -> Outcome {
        question
            .check_capabilities(&self.answers())
            .map_err(|missing| RpcError::new(code_of(&question), missing.to_string()))?;
        let asked = question.to_input_request().map_err(|error| {
            let why = format!("the question is unreadable: {error}");
            RpcError::new(ErrorCode::INVALID_PARAMS, why)
        })?;
        match (asked, self) {
            (InputRequest::Elicit(params), Self { form, url, .. }) => match (*params, form, url) {
                (ElicitRequestParams::Form(params), Some(form), _) => {
                    let schema = params.requested_schema.clone();
                    encode(&fill_in(form(params).await, &schema)?)
                }
                (ElicitRequestParams::Url(params), _, Some(url)) => {
                    check_url(&params.url).map_err(|unfit| {
                        RpcError::new(ErrorCode::INVALID_PARAMS, unfit.to_string())
                    })?;
                    let mut result = url(params).await;
                    result.content = None;
                    encode(&result)
                }
                _ => Err(nobody_answers(&question)),
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
                let written = sampling(*params).await?;
                encode(&if has_tools {
                    written
                } else {
                    in_one_block(written)?
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
                    let why = format!("the root `{}` is not a `file://` URI", root.uri);
                    return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why));
                }
                encode(&ListRootsResult::new(roots))
            }
            _ => Err(nobody_answers(&question)),
        }
    }
}

impl Responder for Host {
    fn respond<'a>(&'a self, request: Request, _: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            match Question::from_request(&request.method, Some(request.params.into_json())) {
                Some(question) => self.answer(question).await,
                None => {
                    let why = format!("this client does not answer `{}`", request.method);
                    Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, why))
                }
            }
        })
    }

    fn roots_changed(&self, _: &Caller) {} // it is the host that says so

    fn answers(&self) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        if self.form.is_some() || self.url.is_some() {
            let mut elicitation = ElicitationCapability::default();
            elicitation.form = self.form.is_some().then(Settings::default);
            elicitation.url = self.url.is_some().then(Settings::default);
            capabilities.elicitation = Some(elicitation);
        }
        if self.sampling.is_some() {
            let mut sampling = SamplingCapability::default();
            sampling.tools = self.sampling_tools.then(Settings::default);
            sampling.context = self.sampling_context.then(Settings::default);
            capabilities.sampling = Some(sampling);
        }
        if self.roots.is_some() {
            let roots = capabilities.roots.insert(RootsCapability::default());
            roots.list_changed = self.roots_change.then_some(true);
        }
        capabilities
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("answers", &self.answers())
            .finish_non_exhaustive()
    }
}

/// Adds the defaults of fields that an accepted form leaves out, and validates the result.
fn fill_in(mut result: ElicitResult, schema: &ElicitSchema) -> Result<ElicitResult, RpcError> {
    if result.action != ElicitAction::Accept {
        result.content = None;
        return Ok(result);
    }
    let content = result.content.take().unwrap_or_else(Json::empty_object);
    let ours = |why: String| RpcError::new(ErrorCode::INTERNAL_ERROR, why);
    let content = Object::read(&content)
        .map_err(|_| ours("the host filled in a form by something else than an object".into()))?;
    let mut filled: Vec<(&str, Json)> = content
        .iter()
        .map(|(name, value)| (name, value.clone()))
        .collect();
    // The server decides how many fields there are, so none is looked for among all of them.
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

/// Without tools a model answers with one block.
fn in_one_block(mut written: CreateMessageResult) -> Result<CreateMessageResult, RpcError> {
    if let SamplingContent::Many(blocks) = &mut written.content {
        let (Some(block), true) = (blocks.pop(), blocks.is_empty()) else {
            let why = "the host answered with a number of blocks, which takes tools";
            return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why));
        };
        written.content = SamplingContent::One(block);
    }
    Ok(written)
}

/// How a question is refused that was asked although nobody here said that it can be answered.
fn code_of(question: &Question) -> ErrorCode {
    match question.kind {
        Kind::Elicitation => ErrorCode::INVALID_PARAMS,
        Kind::Sampling | Kind::Roots => ErrorCode::METHOD_NOT_FOUND,
    }
}

fn nobody_answers(question: &Question) -> RpcError {
    let why = format!("this client does not answer `{}`", question.kind);
    RpcError::new(code_of(question), why)
}

fn encode(answer: &impl Serialize) -> Outcome {
    Json::encode(answer).map_err(|error| {
        let why = format!("the host's answer has no JSON form: {error}");
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
    fn what_an_accepted_form_leaves_out_gets_its_default_and_nothing_else_changes() {
        let filled = fill_in(
            ElicitResult::accept(json!({"name": "Ada", "age": 36})),
            &schema(),
        );

        let content: serde_json::Value = filled.unwrap().content.unwrap().decode().unwrap();
        assert_eq!(content, json!({"name": "Ada", "age": 36, "vegan": false}));
    }

    /// Takes a minute where each field is looked for among all of them.
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

        let filled = fill_in(ElicitResult::accept(json!({})), &schema).unwrap();

        let content: serde_json::Value = filled.content.unwrap().decode().unwrap();
        assert_eq!(content.as_object().unwrap().len(), names.len());
    }

    #[test]
    fn a_required_field_without_a_default_must_be_filled_in() {
        let error = fill_in(ElicitResult::accept(json!({})), &schema()).unwrap_err();

        assert_eq!(
            error.message,
            "invalid form content from the host: the field `name` is required"
        );
    }

    #[test]
    fn a_declined_form_has_no_content() {
        let mut declined = ElicitResult::accept(json!({"name": "Ada"}));
        declined.action = ElicitAction::Decline;

        assert_eq!(fill_in(declined, &schema()).unwrap().content, None);
    }

    #[test]
    fn a_host_declares_exactly_what_it_answers() {
        let declined = async |_| ElicitResult::new(ElicitAction::Decline);
        let declared = |host: &Host| serde_json::to_value(host.answers()).unwrap();

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
